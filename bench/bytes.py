"""The bytes that the busiest device receives, divided by their lower bound, for several planners.

The cases are all ordered pairs of shardings of a matrix, and the corpus. `auto` is the planner's
choice for a switch of H100s. XLA compiles the identity between the two shardings, for dimensions
that divide evenly; its bytes come from the HLO. DTensor can only express shardings with axes in
mesh order, so it only plans pairs of such shardings. Pairs that need no move are left out.

A run takes about three minutes of CPU time. The picture is `pictures/bytes.svg`.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import shardwright as sw
from bench.balance import shardings
from bench.chart import Chart, Series, written
from shardwright.codegen.moves.compare import why_not_xla
from shardwright.codegen.spec.description import Description

TOPOLOGY = "h100"
CASES = (
    ({"x": 2, "y": 3}, (1536, 2112)),
    ({"x": 2, "y": 3}, (1537, 2111)),
    ({"x": 2, "y": 4}, (2048, 1536)),
    ({"x": 2, "y": 4}, (2051, 1537)),
    ({"x": 2, "y": 2, "z": 2}, (2048, 1024)),
    ({"x": 2, "y": 2, "z": 2}, (2051, 1027)),
)
CORPUS = ("corpus/reshards.toml", "corpus/examples.toml")
XLA = "from shardwright.codegen.moves.xla import main; main()"


@dataclass(frozen=True)
class Measured:
    """The bytes that the busiest device receives, divided by the bound, for every pair that a
    planner supports."""

    ratios: tuple[float, ...]

    def cells(self) -> tuple[str, str]:
        """Return two cells of the table: the mean with the number of pairs, and the worst ratio."""
        if not self.ratios:
            return "", ""
        mean, worst = float(np.mean(self.ratios)), max(self.ratios)
        return f"{mean:.3f} of {len(self.ratios)}", f"{worst:.2f}"


def pairs_of(axes: dict[str, int], shape: tuple[int, ...]) -> list[sw.Reshard]:
    """Return the reshards of all ordered pairs of shardings between which bytes move."""
    both = itertools.product(shardings(sw.Mesh(axes)), repeat=2)
    made = [sw.Reshard(shape=shape, dtype="float32", source=a, target=b) for a, b in both]
    return [reshard for reshard in made if bound(reshard)]


def bound(reshard: sw.Reshard) -> int:
    """Return the lower bound on the bytes that the busiest device receives."""
    return sw.plan(reshard).traffic.bound_received_max


def planned(reshards: Iterable[sw.Reshard], strategy: str) -> Measured:
    """Return the ratios of our own plans with a strategy."""
    found = []
    for reshard in reshards:
        topology = None if strategy == "direct" else TOPOLOGY
        moved = sw.plan(reshard, strategy, topology=topology).traffic
        found.append(moved.received_max / moved.bound_received_max)
    return Measured(tuple(found))


def by_xla(reshards: Iterable[sw.Reshard]) -> Measured:
    """Return the ratios of XLA's own reshards, except reshards that JAX does not accept."""
    asked = [reshard for reshard in reshards if why_not_xla(reshard) is None]
    if not asked:
        return Measured(())
    devices = max(reshard.source.mesh.size for reshard in asked)
    lines = [json.dumps(Description.of(reshard, "asked").to_dict()) for reshard in asked]
    flag = f"--xla_force_host_platform_device_count={devices}"
    answers = run(["-c", XLA], lines, JAX_PLATFORMS="cpu", XLA_FLAGS=flag)
    received = (json.loads(answer)["received_max"] for answer in answers)
    return Measured(tuple(r / bound(a) for r, a in zip(received, asked, strict=True)))


def by_dtensor(reshards: Iterable[sw.Reshard]) -> Measured:
    """Return the ratios of DTensor's reshards, except those whose shardings it cannot express."""
    asked, lines = [], []
    for reshard in reshards:
        sides = [dimension_of_axes(side) for side in (reshard.source, reshard.target)]
        if None not in sides:
            asked.append(reshard)
            sizes = [size for _, size in reshard.source.mesh.axes]
            lines.append(json.dumps([sizes, list(reshard.shape), *sides]))
    answers = run(["-m", "bench.dtensor"], lines)
    return Measured(tuple(int(n) / bound(a) for n, a in zip(answers, asked, strict=True)))


def dimension_of_axes(sharding: sw.Sharding) -> list[int | None] | None:
    """Return the dimension that each axis splits, None for an unused axis; or None if the axes of a
    dimension are not in mesh order."""
    names = sharding.mesh.names
    found: list[int | None] = [None] * len(names)
    for dim, axes in enumerate(sharding.dims):
        places = [names.index(ref.name) for ref in axes.axes]
        if places != sorted(places):
            return None
        for place in places:
            found[place] = dim
    return found


def run(words: list[str], lines: list[str], **environment: str) -> list[str]:
    """Return the lines that a separate process prints when given `lines` on standard input."""
    with tempfile.TemporaryFile("w+") as said:
        done = subprocess.run(
            [sys.executable, *words],
            input="\n".join(lines) + "\n",
            text=True,
            check=False,
            stdout=subprocess.PIPE,
            stderr=said,
            env=os.environ | environment,
        )
        said.seek(0)
        if done.returncode:
            raise SystemExit(said.read()[-2000:])
    return done.stdout.split("\n")[:-1]


PLANNERS: dict[str, Callable[[Sequence[sw.Reshard]], Measured]] = {
    "direct": lambda reshards: planned(reshards, "direct"),
    "auto": lambda reshards: planned(reshards, "auto"),
    "XLA": by_xla,
    "DTensor": by_dtensor,
}


def named(axes: dict[str, int], shape: tuple[int, ...]) -> tuple[str, str]:
    """Return the sizes of a mesh and a shape as strings, such as "2x3"."""
    return "x".join(map(str, axes.values())), "x".join(map(str, shape))


def measured_matrices() -> list[list[Measured]]:
    return [[ask(pairs_of(*case)) for ask in PLANNERS.values()] for case in CASES]


def matrices(found: list[list[Measured]]) -> Table:
    """Return the table of all ordered pairs of shardings of a matrix."""
    table = Table("mesh", "shape", title="Busiest receiver over the bound, all ordered pairs")
    for name in PLANNERS:
        table.add_column(f"{name}: mean", justify="right")
        table.add_column("worst", justify="right")
    for case, measured in zip(CASES, found, strict=True):
        cells = itertools.chain.from_iterable(one.cells() for one in measured)
        table.add_row(*named(*case), *cells)
    return table


def picture(found: list[list[Measured]]) -> Chart:
    """Return the chart of the planners' means and worst cases on every mesh."""
    series = []
    for number, name in enumerate(PLANNERS):
        asked = [
            (place, row[number].ratios) for place, row in enumerate(found) if row[number].ratios
        ]
        shift = (number - (len(PLANNERS) - 1) / 2) * 0.12
        for what, of in (("mean", np.mean), ("worst", max)):
            points = tuple((place + shift, float(of(ratios))) for place, ratios in asked)
            series.append(Series(f"{name}, {what}", points, number, hollow=what == "worst"))
    ticks = tuple((float(place), "\n".join(named(*case))) for place, case in enumerate(CASES))
    title = "Bytes into the busiest device over the lower bound, all pairs of shardings"
    return Chart(title, "mesh and matrix", "times the bound", tuple(series), ticks)


def corpus() -> Table:
    table = Table("reshard", title="Busiest receiver over the bound, the corpus")
    for name in ("direct", "auto", "XLA"):
        table.add_column(name, justify="right")
    for path in CORPUS:
        for described in sw.load_toml(Path(path)):
            reshard = described.reshard()
            if not bound(reshard):
                continue
            direct = () if adds(reshard) else planned([reshard], "direct").ratios
            auto = sw.plan(reshard, topology="switch").traffic
            xla = () if adds(reshard) else by_xla([reshard]).ratios
            table.add_row(
                described.name,
                f"{direct[0]:.3f}" if direct else "adds",
                f"{auto.received_max / auto.bound_received_max:.3f}",
                f"{xla[0]:.3f}" if xla else why_not_xla(reshard) or "adds",
            )
    return table


def adds(reshard: sw.Reshard) -> bool:
    """Return whether a reshard adds partial sums, which a plain exchange cannot do."""
    return reshard.source.unreduced != reshard.target.unreduced


def main() -> None:
    console = Console(width=140)
    found = measured_matrices()
    console.print(matrices(found))
    written("bytes", picture(found))
    console.print(corpus())
