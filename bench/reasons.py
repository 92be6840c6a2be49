"""Why a kernel is predicted to take longer than XLA's own plan: the part of the kernel's time that
exceeds XLA's by most.

The kernel and XLA's plan are priced twice, with and without the latencies of links: the difference
is start-up time. The rest is time on links, or in copies that XLA makes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import shardwright as sw
from bench.peers import xla_seconds
from shardwright.codegen.moves.network.flows import flows
from shardwright.codegen.moves.network.links import Network
from shardwright.codegen.moves.network.timeline import Copies, Sends, cost_of
from shardwright.codegen.moves.xla import XlaCollectives
from shardwright.codegen.moves.xla_cost import seconds_of_passes
from shardwright.codegen.registry import backend
from shardwright.ir.plan import Plan

PADDED = 1.05
"""Padding is not the reason if the time on links is below this multiple of the time of the exact
bytes."""


def at_once(network: Network) -> Network:
    """Return a network whose links have no latency."""
    topology: Any = network.topology
    return Network(replace(topology, latency=0.0), network.devices)


@dataclass(frozen=True)
class Parts:
    """The predicted seconds of one side: in start-ups, in copies other than transfers, and on
    links."""

    starts: float
    copies: float
    links: float

    @property
    def seconds(self) -> float:
        """The sum of the seconds of all parts."""
        return self.starts + self.copies + self.links


def of_kernel(name: str, plan: Plan, network: Network) -> Parts:
    """Split the seconds of a backend's module into parts."""
    timeline = backend(name).timeline(plan)
    whole, bare = (cost_of(timeline, each) for each in (network, at_once(network)))
    pairs = zip(timeline.stages, bare.stages, strict=True)
    copies = sum(cost.seconds for stage, cost in pairs if isinstance(stage, Copies))
    return Parts(whole.seconds - bare.seconds, copies, bare.seconds - copies)


def busiest(reshard: sw.Reshard, found: XlaCollectives, network: Network) -> float:
    """Return the bytes on the busiest link of each of XLA's collectives, summed over the
    collectives."""
    bandwidth: float = network.topology.bandwidth  # type: ignore[union-attr]
    return of_xla(reshard, found, network).links * bandwidth


def of_xla(reshard: sw.Reshard, found: XlaCollectives, network: Network) -> Parts:
    """Split the seconds of XLA's own plan into parts."""
    whole, bare = (xla_seconds(reshard, found, each) for each in (network, at_once(network)))
    return Parts(whole - bare, seconds_of_passes(found.copied, network), bare)


def reason(name: str, plan: Plan, found: XlaCollectives, network: Network) -> str:
    """Return the main reason why a backend's module takes longer than XLA's own plan, or "" if it
    does not."""
    ours, theirs = of_kernel(name, plan, network), of_xla(plan.reshard, found, network)
    if ours.seconds <= theirs.seconds * (1 + 1e-9):
        return ""
    if not found.moves:
        return f"nothing has to move: the kernel copies what is there, {_said(ours.seconds)}"
    more = {
        f"start-ups of {_said(ours.starts)}, XLA's of {_said(theirs.starts)}": (
            ours.starts - theirs.starts
        ),
        f"copies that XLA makes beside the kernel, {_said(ours.copies)}, in its own plan "
        f"{_said(theirs.copies)}": ours.copies - theirs.copies,
        _on_links(name, plan, network, ours, theirs): ours.links - theirs.links,
    }
    return max(more, key=lambda each: more[each])


def _on_links(name: str, plan: Plan, network: Network, ours: Parts, theirs: Parts) -> str:
    """Return why links, or HBM during transfers, are busy for longer than in XLA's plan."""
    timeline, exchange = backend(name).timeline(plan), plan.exchange
    bare, itemsize = at_once(network), plan.reshard.itemsize
    direct = bare.seconds(bare.total(flows(exchange, itemsize)))
    times, rounds = ours.links / direct if direct else 0.0, timeline.stages
    count = sum(isinstance(stage, Sends) for stage in rounds)
    if direct > theirs.links and times < PADDED:
        return "every receiver gets its own copy, where XLA's collective passes one on"
    if count > 1:
        return f"forwarding in {count} rounds: links are busy {times:.2f} times as long as directly"
    return f"padding of tiles, or HBM meanwhile: {times:.2f} times as long as exact bytes on links"


def _said(seconds: float) -> str:
    return f"{1e6 * seconds:.3g} us"
