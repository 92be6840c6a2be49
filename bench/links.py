"""The time and memory of planning and routing as the number of devices grows, compared with XLA.

Seconds are CPU time. The run takes half a minute, mostly in XLA. The picture is
`pictures/scale.svg`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

import shardwright as sw
from bench.chart import Chart, Series, written
from shardwright.codegen.moves.network.flows import flows
from shardwright.codegen.moves.plan import network_of

MESHES = ((2, 4), (8, 8), (16, 32), (64, 64), (256, 256))
TORI = {8: "v5p:2x2x2", 64: "v5p:4x4x4", 512: "v5p:8x8x8", 4096: "v5p:16x16x16"}
XLA_DEVICES = 512
# The reshards: swapping the axes of rows and columns, and an all-to-all.
RESHARDS = (
    ("transpose", '[{"x"}, {"y"}]', '[{"y"}, {"x"}]'),
    ("all to all", '[{"x", "y"}, {}]', '[{}, {"x", "y"}]'),
)
# Each program runs in a separate process, so that only its own memory is measured. It prints its
# seconds, and its peak megabytes minus the peak after the imports.
PLAN = """
import json, re, sys, time
import shardwright as sw
from shardwright.codegen.moves import choose
(x, y), source, target, strategy = json.loads(sys.argv[1])
mesh = sw.Mesh({"x": x, "y": y})
reshard = sw.Reshard((65536, 65536), "bfloat16", mesh.sharding(source), mesh.sharding(target))
def most():
    return int(re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1])
before = most()
start = time.process_time()
sw.plan(reshard, strategy, topology="switch" if strategy == "basis" else None)
seconds = time.process_time() - start
print(seconds, (most() - before) / 1024)
"""
XLA = """
import json, os, sys, time
(x, y), source, target, _ = json.loads(sys.argv[1])
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={x * y}"
os.environ["JAX_PLATFORMS"] = "cpu"
import jax
import shardwright as sw
mesh = sw.Mesh({"x": x, "y": y})
source, target = (sw.to_named_sharding(mesh.sharding(text)) for text in (source, target))
operand = jax.ShapeDtypeStruct((65536, 65536), "bfloat16", sharding=source)
start = time.process_time()
jax.jit(lambda a: a, out_shardings=target).lower(operand).compile()
print(time.process_time() - start, 0)
"""


def measured(program: str, *words: object) -> tuple[float, float]:
    """Return the seconds and megabytes that a program prints."""
    command = [sys.executable, "-c", program, json.dumps(words)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds, megabytes = map(float, printed.split()[-2:])
    return seconds, megabytes


@dataclass(frozen=True)
class Planned:
    """One reshard on `devices` devices: the (seconds, megabytes) of the direct and of the basis
    plan, and the seconds that XLA takes to compile it, or None if it was not compiled."""

    what: str
    devices: int
    direct: tuple[float, float]
    basis: tuple[float, float]
    xla: float | None

    def cells(self) -> list[str]:
        figures = [
            cell for s, mb in (self.direct, self.basis) for cell in (f"{s:.3f}", f"{mb:.0f}")
        ]
        return [
            self.what,
            f"{self.devices}",
            *figures,
            "" if self.xla is None else f"{self.xla:.3f}",
        ]


def planned() -> Iterator[Planned]:
    """Yield every reshard on every mesh."""
    for what, source, target in RESHARDS:
        for mesh in MESHES:
            devices = int(np.prod(mesh))
            direct, basis = (measured(PLAN, mesh, source, target, s) for s in ("direct", "basis"))
            asked = devices <= XLA_DEVICES
            xla = measured(XLA, mesh, source, target, "")[0] if asked else None
            yield Planned(what, devices, direct, basis, xla)


def planning(found: list[Planned]) -> Table:
    """Return the table of seconds and memory for planning, and of XLA's compile time."""
    table = Table("reshard", title="Planning")
    for name in ("devices", "direct: s", "MB", "basis: s", "MB", "XLA compiles: s"):
        table.add_column(name, justify="right")
    for one in found:
        table.add_row(*one.cells())
    return table


def picture(found: list[Planned]) -> Chart:
    """Return the chart of seconds against devices."""
    series = []
    for number, (what, *_) in enumerate(RESHARDS):
        own = [one for one in found if one.what == what]
        lines = {
            "direct": [(one.devices, one.direct[0]) for one in own],
            "basis": [(one.devices, one.basis[0]) for one in own],
            "XLA compiles": [(one.devices, one.xla) for one in own if one.xla],
        }
        for colour, (name, points) in enumerate(lines.items()):
            line = Series(f"{name}, {what}", tuple(points), colour, joined=True, hollow=number > 0)
            series.append(line)
    counts = [int(np.prod(mesh)) for mesh in MESHES]
    ticks = tuple((float(count), f"{count:,}") for count in counts)
    return Chart(
        "Planning a reshard",
        "devices",
        "seconds of the processor",
        tuple(series),
        ticks,
        is_log=True,
    )


def routing() -> Table:
    """Return the table of CPU seconds to compute every link's load in an exchange on a torus."""
    table = Table("reshard", title="Load of every link")
    for name in ("devices", "topology", "transfers", "seconds"):
        table.add_column(name, justify="right")
    for what, source, target in RESHARDS:
        for (x, y), topology in zip(MESHES, TORI.values(), strict=False):
            mesh = sw.Mesh({"x": x, "y": y})
            sides = (mesh.sharding(source), mesh.sharding(target))
            reshard = sw.Reshard((65536, 65536), "bfloat16", *sides)
            exchange, network = sw.plan(reshard).exchange, network_of(reshard, topology)
            start = time.process_time()
            parts = list(flows(exchange, 2))
            network.total(parts)
            seconds = time.process_time() - start
            count = sum(part.sender.size for part in parts)
            table.add_row(what, str(mesh.size), topology, f"{count:,}", f"{seconds:.3f}")
    return table


def main() -> None:
    console = Console()
    found = list(planned())
    for table in (planning(found), routing()):
        console.print(table)
    written("scale", picture(found))
