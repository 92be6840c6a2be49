"""How fast modules are on a topology, compared with alternatives.

A module's seconds are those of its timeline (`moves/network/timeline.py`). The module is compared
with XLA's own plan if that is available. Otherwise it is compared with the best sequence of
collectives (the basis plan), which XLA's and Shardy's plans have never beaten
(`tests/moves/test_peers.py`). The same model predicts the seconds of both. A verdict is one
line."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from shardwright.codegen import registry
from shardwright.codegen.hardware.presets import name_of
from shardwright.codegen.hardware.topology import Topology, Torus
from shardwright.codegen.moves.basis.plan import plan_basis
from shardwright.codegen.moves.network.links import Network
from shardwright.codegen.moves.network.timeline import TimelineCost, cost_of
from shardwright.codegen.moves.plan import network_of
from shardwright.codegen.moves.xla import XlaCollectives
from shardwright.codegen.moves.xla_cost import seconds_of_passes, seconds_of_xla
from shardwright.ir.errors import InputError
from shardwright.ir.exchange import ids_of
from shardwright.ir.plan import Plan, SteppedPlan
from shardwright.ir.reshard import Reshard

# Plans within this fraction of each other count as equally fast.
AS_FAST = 0.05
# With fewer bytes, a ratio to the minimum is meaningless: the excess is a small tensor's padding.
TOLD_AS_BYTES = 1 << 16


@dataclass(frozen=True)
class Peer:
    """An alternative to a module. `name`: where the plan comes from; `steps`: its collectives, in
    words; `does_it`: the call that executes it, in words."""

    name: str
    seconds: float
    steps: str
    does_it: str


@dataclass(frozen=True)
class Priced:
    """The cost of a backend's module on a topology."""

    backend: str
    cost: TimelineCost


def backends_on(topology: Topology, names: Iterable[str]) -> tuple[str, ...]:
    """Return the backends whose modules run on a topology."""
    torus = isinstance(topology, Torus)
    found = (registry.backend(name) for name in names)
    return tuple(each.name for each in found if each.on_torus in (None, torus))


def priced(plan: Plan, names: Iterable[str], network: Network) -> tuple[Priced, ...]:
    """Return the cost of a plan's modules, for backends that run on the network's topology and
    accept the plan."""
    found = []
    for name in backends_on(network.topology, names):
        backend = registry.backend(name)
        if plan.strategy in backend.executes:
            try:
                backend.refuse(plan)
            except InputError:
                continue
            found.append(Priced(name, cost_of(backend.timeline(plan), network)))
    return tuple(found)


def price_of(names: tuple[str, ...], network: Network) -> Callable[[Plan], float]:
    """Return a function that predicts a plan's seconds: the seconds of its slowest module."""

    def price(plan: Plan) -> float:
        found = priced(plan, names, network)
        if found:
            return max(each.cost.seconds for each in found)
        return plan.prediction.seconds if plan.prediction else math.inf

    return price


def xla_peer(reshard: Reshard, found: XlaCollectives, network: Network) -> Peer:
    seconds = seconds_of_xla(found, network, ids_of(reshard.source.mesh))
    seconds += network.topology.launch
    return Peer("XLA's own plan", seconds, found.steps, "`jax.device_put` is enough")


def collectives_peer(plan: Plan, network: Network) -> Peer | None:
    """Return the best sequence of collectives for a plan's reshard as a peer, or None if there is
    none."""
    try:
        made = _best_sequence(plan, network)
    except InputError:
        return None
    name = "the best sequence of collectives, which is no slower than XLA's own"
    by_steps = next(each for each in registry.every() if "basis" in each.executes)
    relaid = seconds_of_passes(by_steps.relaid(made), network)
    seconds = made.prediction.seconds + relaid + network.topology.launch
    return Peer(name, seconds, made.ops or "none", "`jax.device_put` may be enough")


def _best_sequence(plan: Plan, network: Network) -> SteppedPlan:
    """Return `plan` itself if it comes from a search on this network without a memory limit;
    otherwise search for the basis plan. Raises InputError if no sequence of collectives performs
    the reshard."""
    if isinstance(plan, SteppedPlan):
        said = plan.prediction
        if said.topology == str(network.topology) and said.memory_bytes is None:
            return plan
    return plan_basis(plan.reshard, network)


def verdict(ours: Priced, plan: Plan, peer: Peer | None, where: str) -> str:
    """Say in one line which choice is fastest, and by how much. `peer`: None if no sequence of
    collectives performs this reshard."""
    moved, took = moved_text(ours.cost.wire_bytes, plan), ours.cost.seconds
    line = f"{ours.backend}: {took:.3g} seconds on {where}"
    if f"{ours.cost.used:.3g}" != f"{took:.3g}":
        line += f" ({ours.cost.used:.3g} if the program continues with the result)"
    if peer is None:
        return f"{line}, which no collectives can do; {moved}"
    took_there = peer.seconds
    if not took and not took_there:
        return f"{ours.backend}: nothing moves; {peer.does_it}"
    theirs = f"{peer.name} ({peer.steps})"
    if not took:
        return f"{line}, where {theirs} takes {took_there:.3g}; {moved}"
    if not took_there:
        return f"{line}; better is {theirs}, which takes no time; {peer.does_it}; {moved}"
    if took_there > (1 + AS_FAST) * took:
        times = f"{took_there / took:.1f} times as fast as {theirs}"
        return f"{line}, {times}; {moved}"
    if took <= (1 + AS_FAST) * took_there:
        return f"{line}, as fast as {peer.name}; {peer.does_it}; {moved}"
    better = f"better, {took / took_there:.1f} times as fast, is {theirs}"
    return f"{line}; {better}; {peer.does_it}; {moved}"


def moved_text(wire_bytes: int, plan: Plan) -> str:
    """Say in words how many bytes move, what the minimum is, and how many bytes the module adds to
    the plan's."""
    least, exact = plan.traffic.bound_received_max, plan.traffic.received_max
    more = wire_bytes - exact
    beyond = f", {more:,} of them padding or forwarded" if more > 0 else ""
    if wire_bytes < TOLD_AS_BYTES or not least:
        return f"moves {wire_bytes:,} bytes, {least:,} at least{beyond}"
    return f"moves {wire_bytes / least:.2f} of the least{beyond}"


def peer_of(plan: Plan, network: Network, found: XlaCollectives | None) -> Peer | None:
    if found is not None:
        return xla_peer(plan.reshard, found, network)
    return collectives_peer(plan, network)


def verdicts(
    plan: Plan, names: Iterable[str], topology: str | Topology, found: XlaCollectives | None
) -> tuple[str, ...]:
    """Return one line per backend; `found`: XLA's own plan, if available."""
    network = network_of(plan.reshard, topology)
    peer, where = peer_of(plan, network, found), name_of(network.topology)
    return tuple(verdict(one, plan, peer, where) for one in priced(plan, names, network))


def page_lines(plan: Plan, names: Iterable[str]) -> tuple[str, ...]:
    """Return a review page's lines on the seconds of modules and the comparison with peers, or none
    without a topology.

    XLA's own plan is not used, so that a page does not depend on installed packages.
    """
    if plan.prediction is None or plan.reshard.adds:
        return ()
    topology, names = plan.prediction.topology, tuple(names)
    network = network_of(plan.reshard, topology)
    took = (
        f"{one.backend}, stage by stage in seconds: {_stages(one.cost)}"
        for one in priced(plan, names, network)
    )
    return (*verdicts(plan, names, topology, None), *took)


def _stages(cost: TimelineCost) -> str:
    """Return the stages with their seconds in words. Equal neighbouring stages appear once."""
    said = ((stage.what, f"{stage.seconds:.3g}") for stage in cost.stages)
    groups = ((each, len(list(same))) for each, same in itertools.groupby(said))
    return "; ".join(
        f"{what} {seconds}" + (f", {count} times" if count > 1 else "")
        for (what, seconds), count in groups
    )
