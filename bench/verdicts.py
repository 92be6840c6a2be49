"""The predicted seconds of emitted modules, of XLA's own plan and of Shardy's sequence, by one
model.

A second table lists the kernels that take longer than XLA's own plan, each with the model's reason
(`reasons.py`).

The reshards are the corpus, and the first random ones that JAX accepts, whose dimensions divide
evenly. Kernels execute direct plans; plain JAX executes the plan that `auto` chooses. A kernel has
a second price, for programs that continue with its result. On TPUs, the prices of modules and of
XLA's own plan include the passes over memory that XLA makes around collectives (`xla_copies.md`).
On GPUs these passes are not counted, and Shardy's steps have none. If XLA's own plan loses bits of
small floats on a TPU, it is marked and not compared: our modules keep every bit. The table is
written to `verdicts.md` in this folder.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, log
from pathlib import Path

import shardwright as sw
from bench.peers import PeerStep, by_shardy, by_xla, shardy_seconds, versions
from bench.reasons import reason
from bench.reshards import corpus, random_reshard
from shardwright.codegen.backends.jax_xla.laid import is_small_float
from shardwright.codegen.moves.compare import why_not_xla
from shardwright.codegen.moves.plan import network_of
from shardwright.codegen.moves.xla import XlaCollectives
from shardwright.codegen.operations.emit.verdict import Peer, Priced, priced, verdict, xla_peer
from shardwright.codegen.registry import NAMES
from shardwright.ir.errors import InputError
from shardwright.ir.plan import Plan

KERNELS = NAMES[:2]
TOPOLOGIES = ("v5e:2x4", "v5e:4x4", "v5p:2x2x2", "v6e:2x4", "h100:8")
RANDOM = 100
DEVICES = 8
NEARLY = 1.25
ROUNDING = 1e-9
"""Seconds that differ by less than this fraction count as equal, because they may have been added
up in another order."""
RESULT = Path(__file__).parent / "verdicts.md"


@dataclass(frozen=True)
class Row:
    """One reshard on one topology.

    `modules`: the price and the plan of each backend's module; `xla`: the price of XLA's own plan;
    `shardy`: the seconds of Shardy's sequence, or None; `reason`: the main reason why the kernel
    takes longer than XLA's own plan, or ""; `keeps`: whether XLA's own plan keeps every bit.
    """

    name: str
    topology: str
    modules: tuple[tuple[Priced, Plan], ...]
    xla: Peer
    shardy: float | None
    reason: str
    keeps: bool

    @property
    def kernel(self) -> Priced | None:
        """The price of the module with a kernel, or None."""
        return next((one for one, _ in self.modules if one.backend in KERNELS), None)

    @property
    def best(self) -> tuple[Priced, Plan]:
        """The price and the plan of the fastest module."""
        return min(self.modules, key=lambda each: each[0].cost.seconds)

    @property
    def said(self) -> str:
        return verdict(*self.best, self.xla, self.topology)

    @property
    def over(self) -> float:
        """The fraction by which the fastest module takes longer than XLA's own plan; 0 if it
        does not take longer, or if XLA's plan does not keep every bit."""
        took = self.best[0].cost.seconds
        return max(took / self.xla.seconds - 1 - ROUNDING, 0.0) if took and self.keeps else 0.0


def asked(count: int) -> dict[str, sw.Reshard]:
    """Return the reshards of the corpus that JAX accepts, and the first `count` random ones, by
    name."""
    listed = {n: r for n, r in corpus().items() if r.source.mesh.size <= DEVICES}
    found = {name: r for name, r in listed.items() if why_not_xla(r) is None}
    drawn = ((f"random_{seed:03}", random_reshard(seed)) for seed in itertools.count())
    even = ((name, r) for name, r in drawn if why_not_xla(r) is None)
    return found | dict(itertools.islice(even, count))


def rows(count: int) -> Iterator[Row]:
    """Yield a row for every reshard on every topology."""
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
    modules = [(one, kernels) for one in priced(kernels, KERNELS, network)]
    try:
        plain = sw.emit(reshard, ("jax_xla",), topology=topology).plan
        modules += [(one, plain) for one in priced(plain, ("jax_xla",), network)]
    except InputError:
        pass
    peer = xla_peer(reshard, compiled, network)
    shardy = None if steps is None else shardy_seconds(reshard, steps, topology)
    why = [
        reason(each.backend, plan, compiled, network)
        for each, plan in modules[:1]
        if each.backend in KERNELS
    ]
    on_tpu = any(each.backend == "pallas_tpu" for each, _ in modules)
    keeps = compiled.keeps_floats or not (on_tpu and is_small_float(reshard))
    return Row(name, topology, tuple(modules), peer, shardy, "".join(why), keeps)


def _lines(found: list[Row]) -> Iterator[str]:
    yield "| reshard | on | kernel | used | plain JAX | XLA's own | Shardy's | verdict on best |"
    yield "| --- " * 8 + "|"
    for row in found:
        by_name = {one.backend: f"{1e3 * one.cost.seconds:.3g}" for one, _ in row.modules}
        kernel = by_name[row.kernel.backend] if row.kernel else "-"
        used = f"{1e3 * row.kernel.cost.used:.3g}" if row.kernel else "-"
        others = (row.xla.seconds, row.shardy)
        peers = ("-" if seconds is None else f"{1e3 * seconds:.3g}" for seconds in others)
        marks = ("" if row.keeps else " *", "")
        peers = (f"{peer}{mark}" for peer, mark in zip(peers, marks, strict=True))
        plain = by_name.get("jax_xla", "-")
        yield f"| {row.name} | {row.topology} | {kernel} | {used} | {plain} | " + " | ".join(
            (*peers, f"{row.said} |")
        )


def _summary(found: list[Row]) -> Iterator[str]:
    for topology in TOPOLOGIES:
        there = [row for row in found if row.topology == topology]
        moving = [row for row in there if row.xla.seconds and row.best[0].cost.seconds]
        ratios = [row.xla.seconds / row.best[0].cost.seconds for row in moving]
        mean = exp(sum(map(log, ratios)) / len(ratios))
        least, better = min(ratios), sum("is XLA's own plan" in row.said for row in there)
        slower = [row.over for row in there if row.over]
        lossy = sum(not row.keeps for row in there)
        yield (
            f"{topology}: {len(there)} reshards; XLA's own plan takes {mean:.2f} times the seconds "
            f"of our quickest module (geometric mean; least {least:.2f}, most {max(ratios):.2f}); "
            f"XLA's is better in {better}, as their verdicts say, and takes less in {len(slower)}"
            + (f", by {max(slower):.2g} at most" if slower else "")
            + (f" ({lossy} marked *, in which it loses bits, not compared)." if lossy else ".")
        )


def _kernels(found: list[Row]) -> Iterator[str]:
    for topology in TOPOLOGIES:
        there = [row for row in found if row.topology == topology and row.kernel]
        slower = [row for row in there if row.reason]
        recommended = sum(not row.over for row in there)
        nearly = sum(row.kernel.cost.seconds <= NEARLY * row.xla.seconds for row in there)  # type: ignore[union-attr]
        used = sum(row.kernel.cost.used <= row.xla.seconds for row in there)  # type: ignore[union-attr]
        yield (
            f"{topology}: the module that is recommended takes at most XLA's seconds in "
            f"{recommended} of {len(there)}, the kernel alone in {len(there) - len(slower)} (in "
            f"{used} if the program continues with the result), and {NEARLY} times them in "
            f"{nearly}. "
            f"Why the others take longer: {_counted(slower)}."
        )
    yield from ("", "| reshard | on | kernel over XLA's own | most of it |", "| --- " * 4 + "|")
    for row in (row for row in found if row.reason and row.kernel):
        over = f"{row.kernel.cost.seconds / row.xla.seconds:.2f}" if row.xla.seconds else "-"
        yield f"| {row.name} | {row.topology} | {over} | {row.reason} |"


def _counted(rows: list[Row]) -> str:
    kinds = Counter(re.split(r"[,:]| of | in ", row.reason)[0] for row in rows)
    return "; ".join(f"{kind} ({times})" for kind, times in kinds.most_common()) or "none"


def main(count: int = RANDOM) -> None:
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
        "*: XLA adds up the shards of a vector of small floats, each in its place among zeros: -0 "
        "becomes 0, and NaNs lose their payload. Our modules keep every bit.",
        "",
    ]
    kernels = ["", "## Kernels that take longer than XLA's own plan", "", *_kernels(found)]
    RESULT.write_text("\n".join([*text, *_lines(found), *kernels]) + "\n")
    print("\n".join([*summary, *kernels[3 : 3 + len(TOPOLOGIES)]]))
