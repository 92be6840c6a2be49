"""How long planning and routing take, and how much memory, as devices grow; beside XLA."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import numpy as np
from rich.console import Console
from rich.table import Table

import shardwright as sw
from shardwright.codegen.planner.choose import network_of
from shardwright.codegen.planner.flows import flows

MESHES = ((2, 4), (8, 8), (16, 32), (64, 64), (256, 256))
TORI = {8: "v5p:2x2x2", 64: "v5p:4x4x4", 512: "v5p:8x8x8", 4096: "v5p:16x16x16"}
XLA_DEVICES = 512
# What is moved: rows and columns change axes, and all to all.
RESHARDS = (
    ("transpose", '[{"x"}, {"y"}]', '[{"y"}, {"x"}]'),
    ("all to all", '[{"x", "y"}, {}]', '[{}, {"x", "y"}]'),
)
# A process of its own for each, so that memory is its own: seconds and peak megabytes above what
# the imports take.
PLAN = """
import json, re, sys, time
import shardwright as sw
from shardwright.codegen.planner import choose
(x, y), source, target, strategy = json.loads(sys.argv[1])
mesh = sw.Mesh({"x": x, "y": y})
reshard = sw.Reshard((65536, 65536), "bfloat16", mesh.sharding(source), mesh.sharding(target))
def most():
    return int(re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1])
before = most()
start = time.perf_counter()
sw.plan(reshard, strategy, topology="switch" if strategy == "basis" else None)
seconds = time.perf_counter() - start
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
start = time.perf_counter()
jax.jit(lambda a: a, out_shardings=target).lower(operand).compile()
print(time.perf_counter() - start, 0)
"""


def measured(program: str, *words: object) -> tuple[float, float]:
    """Seconds and megabytes that a program prints."""
    command = [sys.executable, "-c", program, json.dumps(words)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds, megabytes = map(float, printed.split()[-2:])
    return seconds, megabytes


def planning() -> Table:
    """Seconds and memory of plans, and XLA's compile time."""
    table = Table("reshard", title="Planning")
    for name in ("devices", "direct: s", "MB", "basis: s", "MB", "XLA compiles: s"):
        table.add_column(name, justify="right")
    for what, source, target in RESHARDS:
        for mesh in MESHES:
            devices = int(np.prod(mesh))
            cells = []
            for strategy in ("direct", "basis"):
                seconds, megabytes = measured(PLAN, mesh, source, target, strategy)
                cells += [f"{seconds:.3f}", f"{megabytes:.0f}"]
            xla = ""
            if devices <= XLA_DEVICES:
                xla = f"{measured(XLA, mesh, source, target, '')[0]:.3f}"
            table.add_row(what, str(devices), *cells, xla)
    return table


def routing() -> Table:
    """Seconds of the load of every link of an exchange on a torus."""
    table = Table("reshard", title="Load of every link")
    for name in ("devices", "topology", "transfers", "seconds"):
        table.add_column(name, justify="right")
    for what, source, target in RESHARDS:
        for (x, y), topology in zip(MESHES, TORI.values(), strict=False):
            mesh = sw.Mesh({"x": x, "y": y})
            sides = (mesh.sharding(source), mesh.sharding(target))
            reshard = sw.Reshard((65536, 65536), "bfloat16", *sides)
            exchange, network = sw.plan(reshard).exchange, network_of(reshard, topology)
            start = time.perf_counter()
            parts = list(flows(exchange, 2))
            network.total(parts)
            seconds = time.perf_counter() - start
            count = sum(part.sender.size for part in parts)
            table.add_row(what, str(mesh.size), topology, f"{count:,}", f"{seconds:.3f}")
    return table


def main() -> None:
    """Print the tables."""
    console = Console()
    for table in (planning(), routing()):
        console.print(table)
