"""The time to emit, to enumerate transfers and to import, for one reshard and for a whole
checkpoint."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

import shardwright as sw
from shardwright.codegen.spec.config import read_config
from shardwright.ir.transfers import enumerate_transfers

REPEATS = 3
MESHES = ({"x": 2, "y": 4}, {"x": 16, "y": 32}, {"x": 64, "y": 64}, {"x": 256, "y": 256})
# (name, shape, source, target): an even reshard, an uneven one, and one with a replicated source.
RESHARDS = (
    ("transpose", (131072, 65536), '[{"x"}, {"y"}]', '[{"y"}, {"x"}]'),
    ("uneven", (65537, 65539), '[{"x", "y"}, {}]', '[{"y"}, {"x"}]'),
    ("replicated", (65537, 65539), '[{"x"}, {}]', '[{}, {"y"}]'),
)


def best(run: Callable[[], object]) -> float:
    """Return the seconds of the fastest of a few runs."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


# Each measurement runs in a new process, because the caches of an earlier one would help. It prints
# the seconds after the imports, and the number of characters in the two modules.
BUNDLE = """
import sys, time, pathlib
import shardwright as sw
import shardwright.codegen.backends, shardwright.codegen.moves, shardwright.codegen.show
axes, shape, source, target, folder = eval(sys.argv[1])
start = time.perf_counter()
mesh = sw.Mesh(axes)
reshard = sw.Reshard(
    shape=shape, dtype="bfloat16", source=mesh.sharding(source), target=mesh.sharding(target)
)
sw.emit(reshard).write(folder + "/case")
seconds = time.perf_counter() - start
modules = pathlib.Path(folder, "case").glob("*_?pu.py")
print(seconds, sum(len(path.read_text()) for path in modules))
"""


def bundle(*described: object) -> tuple[float, int]:
    """Return the minimum seconds, over a few processes, to emit a description, and the number of
    characters in its modules."""
    runs = []
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-c", BUNDLE, repr((*described, folder))]
            printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            seconds, characters = printed.split()
            runs.append((float(seconds), int(characters)))
    return min(runs)


def emission() -> Table:
    """Return the table of how long it takes to write a bundle from its description, and of the
    lengths of its modules."""
    table = Table(title="From description to written bundle")
    for column in (
        "reshard",
        "devices",
        "seconds",
        "of 8 devices",
        "module characters",
        "of 8 devices",
    ):
        table.add_column(column, justify="left" if column == "reshard" else "right")
    for what, shape, source, target in RESHARDS:
        first: tuple[float, int] | None = None
        for axes in MESHES:
            seconds, characters = bundle(axes, shape, source, target)
            first = first or (seconds, characters)
            table.add_row(
                what,
                str(axes["x"] * axes["y"]),
                f"{seconds:.3f}",
                f"{seconds / first[0]:.2f}",
                str(characters),
                f"{characters / first[1]:.2f}",
            )
    return table


def enumeration() -> Table:
    """Return the table of the rates at which transfers are enumerated."""
    table = Table(title="Enumerating transfers")
    for column in ("reshard", "devices", "transfers", "seconds", "a second"):
        table.add_column(column, justify="left" if column == "reshard" else "right")
    for axes in ({"x": 16, "y": 32}, {"x": 32, "y": 32}):
        mesh = sw.Mesh(axes)
        reshard = sw.Reshard(
            shape=(65536, 65536),
            dtype="int8",
            source=mesh.sharding('[{"x", "y"}, {}]'),
            target=mesh.sharding('[{}, {"x", "y"}]'),
        )
        exchange = sw.plan(reshard).exchange
        count = len(enumerate_transfers(exchange))
        seconds = best(lambda e=exchange: enumerate_transfers(e))
        rate = f"{count / seconds:,.0f}"
        table.add_row("all to all", str(mesh.size), f"{count:,}", f"{seconds:.3f}", rate)
    return table


def imports() -> Table:
    """Return the table of the seconds that a process with each import takes."""
    table = Table(title="Starting")
    table.add_column("command")
    table.add_column("seconds", justify="right")
    for title, command in (
        ("python -c pass", ["-c", "pass"]),
        ("import shardwright", ["-c", "import shardwright"]),
        ("shardwright --help", ["-m", "shardwright", "--help"]),
    ):
        run = [sys.executable, *command]
        seconds = best(lambda r=run: subprocess.run(r, check=True, capture_output=True))
        table.add_row(title, f"{seconds:.2f}")
    return table


CHECKPOINT = Path(__file__).resolve().parent.parent / "corpus" / "checkpoint.toml"
# Each program runs in a separate process. It first imports the writer, or the packages that modules
# import, and then measures.
WRITTEN = """
import time
from shardwright.codegen import registry
from shardwright.codegen.cli import app
import shardwright.codegen.cli.emit
import shardwright.codegen.operations.emit.emit, shardwright.codegen.operations.emit.group

registry.every()
start = time.process_time()
app(["emit", "checkpoint.toml", "-o", "weights"], standalone_mode=False)
print(time.process_time() - start)
"""
LOADED = """
import json, time
import torch, triton, torch.distributed, torch.distributed._symmetric_memory
import jax, jax.numpy, jax.experimental.pallas

start = time.process_time()
import weights
names = ["weights"] if "weights" in weights.MODULES else [*weights.MODULES]
for backend in ("triton_gpu", "jax_xla"):
    for name in names:
        weights.load(name, backend)
print(time.process_time() - start)
"""


def checkpoint() -> Table:
    """Return the table of CPU seconds to write the modules of 723 tensors, and to load them."""
    table = Table(title="The weights of an 80-layer model")
    for column in ("form", "written", "loaded"):
        table.add_column(column, justify="left" if column == "form" else "right")
    reshards = read_config(CHECKPOINT).reshards
    single = "".join("\n".join(["[[reshard]]", *each.lines(), ""]) for each in reshards)
    for form, text in (("one group", CHECKPOINT.read_text()), ("single reshards", single)):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "checkpoint.toml").write_text(text)
            cells = [
                subprocess.run(
                    [sys.executable, "-c", program],
                    cwd=folder,
                    check=True,
                    capture_output=True,
                    text=True,
                ).stdout.splitlines()[-1]
                for program in (WRITTEN, LOADED)
            ]
        table.add_row(form, *(f"{float(cell):.2f}" for cell in cells))
    return table


def main() -> None:
    console = Console()
    for table in (emission(), checkpoint(), enumeration(), imports()):
        console.print(table)
