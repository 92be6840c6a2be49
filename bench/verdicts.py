"""Predicted seconds of what is emitted, beside XLA's own plan and Shardy's sequence, by one model.

The corpus, and the first random reshards that jax takes (each dimension divides). Kernels are those
of direct plans, plain JAX is what `auto` takes. The peers are priced at their best: nothing is
counted of what XLA copies around its collectives, where it is counted of ours. The table is
written to `verdicts.md` beside this file.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, log
from pathlib import Path

import shardwright as sw
from bench.peers import PeerStep, by_shardy, by_xla, shardy_seconds, versions, xla_seconds
from bench.reshards import corpus, random_reshard
from shardwright.codegen.backends.registry import NAMES
from shardwright.codegen.emit.verdict import Peer, Priced, priced, verdict, xla_peer
from shardwright.codegen.planner.compare import why_not_xla
from shardwright.codegen.planner.plan import network_of
from shardwright.codegen.planner.xla import XlaCollectives
from shardwright.ir.errors import InputError
from shardwright.ir.plan import Plan

TOPOLOGIES = ("v5e:2x4", "v5p:2x2x2", "v6e:2x4", "h100")
RANDOM = 50
DEVICES = 8
RESULT = Path(__file__).parent / "verdicts.md"


@dataclass(frozen=True)
class Row:
    """One reshard on one topology: seconds of each backend's module and of the peers."""

    name: str
    topology: str
    modules: tuple[tuple[Priced, Plan], ...]
    xla: Peer
    shardy: float | None

    @property
    def best(self) -> tuple[Priced, Plan]:
        """The quickest module."""
        return min(self.modules, key=lambda each: each[0].cost.seconds)

    @property
    def said(self) -> str:
        """The verdict on the quickest module."""
        return verdict(*self.best, self.xla, self.topology)


def asked(count: int) -> dict[str, sw.Reshard]:
    """The reshards that jax takes."""
    listed = {n: r for n, r in corpus().items() if r.source.mesh.size <= DEVICES}
    found = {name: r for name, r in listed.items() if why_not_xla(r) is None}
    drawn = ((f"random_{seed:03}", random_reshard(seed)) for seed in itertools.count())
    even = ((name, r) for name, r in drawn if why_not_xla(r) is None)
    return found | dict(itertools.islice(even, count))


def rows(count: int) -> Iterator[Row]:
    """Every reshard on every topology."""
    listed = asked(count)
    reshards = list(listed.values())
    peers = zip(listed.items(), by_xla(reshards), by_shardy(reshards), strict=True)
    for (name, reshard), compiled, steps in peers:
        for topology in TOPOLOGIES:
            yield _row(name, reshard, topology, compiled, steps)


def _row(
    name: str,
    reshard: sw.Reshard,
    topology: str,
    compiled: XlaCollectives,
    steps: tuple[PeerStep, ...] | None,
) -> Row:
    network = network_of(reshard, topology)
    kernels = sw.plan(reshard, "direct", topology=topology)
    modules = [(one, kernels) for one in priced(kernels, NAMES[:2], network)]
    try:
        plain = sw.emit(reshard, ("jax_xla",), topology=topology).plan
        modules += [(one, plain) for one in priced(plain, ("jax_xla",), network)]
    except InputError:
        pass
    peer = xla_peer(reshard, compiled, network)
    assert peer.seconds == xla_seconds(reshard, compiled, network)
    shardy = None if steps is None else shardy_seconds(reshard, steps, topology)
    return Row(name, topology, tuple(modules), peer, shardy)


def _lines(found: list[Row]) -> Iterator[str]:
    yield "| reshard | on | kernel | plain JAX | XLA's own | Shardy's | verdict on the quickest |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for row in found:
        by_name = {one.backend: f"{1e3 * one.cost.seconds:.3g}" for one, _ in row.modules}
        kernel = by_name.get("pallas_tpu") or by_name.get("triton_gpu") or "-"
        others = (row.xla.seconds, row.shardy)
        peers = ("-" if seconds is None else f"{1e3 * seconds:.3g}" for seconds in others)
        plain = by_name.get("jax_xla", "-")
        yield f"| {row.name} | {row.topology} | {kernel} | {plain} | " + " | ".join(
            (*peers, f"{row.said} |")
        )


def _summary(found: list[Row]) -> Iterator[str]:
    for topology in TOPOLOGIES:
        there = [row for row in found if row.topology == topology]
        moving = [row for row in there if row.xla.seconds and row.best[0].cost.seconds]
        ratios = [row.xla.seconds / row.best[0].cost.seconds for row in moving]
        mean = exp(sum(map(log, ratios)) / len(ratios))
        better = sum("is XLA's own plan" in row.said for row in there)
        yield (
            f"{topology}: {len(there)} reshards; XLA's own plan takes {mean:.2f} times the seconds "
            f"of our quickest module (geometric mean; least {min(ratios):.2f}, most "
            f"{max(ratios):.2f}); XLA's is better in {better}, as their verdicts say."
        )


def main(count: int = RANDOM) -> None:
    """Print the summary, and write the table."""
    found = list(rows(count))
    assert all(
        row.best[0].cost.seconds <= 1.05 * row.xla.seconds or "; better" in row.said
        for row in found
    )
    summary = list(_summary(found))
    text = [
        "# Predicted milliseconds of modules beside XLA and Shardy",
        "",
        versions(),
        "",
        *summary,
        "",
    ]
    RESULT.write_text("\n".join([*text, *_lines(found)]) + "\n")
    print("\n".join(summary))
