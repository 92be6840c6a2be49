"""The speed of reshards between N logical devices on one GPU, as a fraction of a copy's.

`python -m bench gpu_copy`. For each reshard of the corpus, all shards are on one GPU, and
`reshard_local` fills existing target shards with one launch per device. It is timed as a CUDA
graph, in which launches take little time, and as a direct call. The same run times a
device-to-device copy of as many bytes. The goal is 0.9 of the copy's rate if tiles have 1 MiB or
more.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.reshards import corpus
from shardwright.codegen.checks.load import load
from shardwright.codegen.moves import plan
from shardwright.codegen.operations.emit.modules import parts
from shardwright.ir import Reshard
from shardwright.ir.dtypes import DTYPES

REPEATS = 20
MIB = 2**20

# Returns the median seconds of a few runs of a call, whether direct or replayed as a graph.
Timer = Callable[[Callable[[], object]], float]


@dataclass(frozen=True)
class Row:
    """One reshard. `total`: the bytes of all target shards; `tile`: the bytes of the largest tile;
    `copy`, `graph`, `call`: the seconds of a copy of `total` bytes, of the reshard in a graph, and
    of the reshard as a direct call."""

    name: str
    devices: int
    total: int
    tile: int
    copy: float
    graph: float
    call: float

    @property
    def ratio(self) -> float:
        """The rate of the reshard in a graph, as a fraction of the copy's rate."""
        return self.copy / self.graph


def measured(name: str, reshard: Reshard, device: str, graph: Timer, call: Timer) -> Row:
    import torch

    made = plan(reshard)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "triton_gpu.py"
        path.write_text(parts(made, "triton_gpu", "shardwright emit", single_file=True)[0].text)
        module = load(path)
        shards, out = _tensors(module, device)
        total = sum(tensor.nbytes for tensor in out)
        source, target = (torch.empty(total, dtype=torch.uint8, device=device) for _ in range(2))
        return Row(
            name=name,
            devices=made.devices,
            total=total,
            tile=int(made.transfers().elements.max()) * DTYPES[reshard.dtype],
            copy=graph(lambda: target.copy_(source)),
            graph=graph(lambda: module.reshard_local(shards, out=out)),
            call=call(lambda: module.reshard_local(shards, out=out)),
        )


def _tensors(module: ModuleType, device: str) -> tuple[list[Any], list[Any]]:
    import torch

    dtype = getattr(torch, module.DTYPE)
    shards = [module.source_shape(each) for each in sorted(module.SOURCE_IDS)]
    out = [module.target_shape(each) for each in sorted(module.TARGET_IDS)]
    return (
        [torch.zeros(shape, dtype=dtype, device=device) for shape in shards],
        [torch.empty(shape, dtype=dtype, device=device) for shape in out],
    )


def by_events(run: Callable[[], object]) -> float:
    """Return the median seconds of a call on the current GPU, measured by events."""
    import torch

    run()
    torch.cuda.synchronize()
    cold = torch.empty(256 * MIB, dtype=torch.uint8, device="cuda")
    seconds = []
    for _ in range(REPEATS):
        cold.zero_()  # flush the L2 cache, so that data is read from memory
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        seconds.append(start.elapsed_time(end) / 1000)
    return statistics.median(seconds)


def by_graph(run: Callable[[], object]) -> float:
    """Return the median seconds of a call's GPU work, replayed as a graph."""
    import torch

    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return by_events(graph.replay)


def by_clock(run: Callable[[], object]) -> float:
    """Return the wall-clock seconds of a call, for machines without a GPU."""
    run()
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def table(rows: list[Row], where: str) -> Table:
    """Return the rows as a table. Rates are in GB/s and count each byte once, although a copy reads
    and writes it."""
    made = Table(title=f"Reshards on {where} against a copy of as many bytes")
    for column in ("reshard", "devices", "MiB", "tile MiB", "copy GB/s", "reshard GB/s"):
        made.add_column(column, justify="left" if column == "reshard" else "right")
    for column in ("of the copy", "called us"):
        made.add_column(column, justify="right")
    for row in rows:
        speeds = (row.total / seconds / 1e9 for seconds in (row.copy, row.graph))
        made.add_row(
            row.name,
            str(row.devices),
            f"{row.total / MIB:.1f}",
            f"{row.tile / MIB:.2f}",
            *(f"{speed:.0f}" for speed in speeds),
            f"{row.ratio:.2f}",
            f"{row.call * 1e6:.0f}",
        )
    return made


def main() -> None:
    """Print the table, or what is missing to measure it."""
    import torch

    if not torch.cuda.is_available():
        print("gpu_copy: no GPU here")
        return
    rows = [
        measured(name, reshard, "cuda", by_graph, by_events) for name, reshard in corpus().items()
    ]
    Console().print(table(rows, torch.cuda.get_device_name()))
