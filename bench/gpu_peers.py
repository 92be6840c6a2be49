"""Time reshards between the GPUs of a host by modules, DTensor and NCCL, with the same tensors in
the same run.

`torchrun --nproc-per-node 8 -m bench.gpu_peers`, with one process per device of the reshards to
measure. Each transport of `reshard` is compared with `redistribute` of a DTensor, if placements can
express both sides, and with a plain `all_to_all_single` of exactly the bytes that the plan moves,
packed in advance. Without GPUs it runs on gloo, as a trial.
"""

from __future__ import annotations

import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.reshards import corpus
from shardwright.codegen.backends.triton_gpu import context as triton_gpu
from shardwright.codegen.checks.load import load
from shardwright.codegen.moves import plan
from shardwright.codegen.operations.emit.modules import parts
from shardwright.ir import Reshard

REPEATS = 20
LARGEST_ON_CPU = 2**22
"""The most elements of a tensor in a trial on gloo."""

COLUMNS = ("symmetric", "exchange", "all_to_all alone", "DTensor")


def seconds(run: Callable[[], object], home: Any) -> float:
    """Return the median over a few runs of the slowest rank's seconds."""
    import torch
    import torch.distributed as dist

    run()
    taken = []
    for _ in range(REPEATS if home.type == "cuda" else 3):
        if home.type == "cuda":
            torch.cuda.synchronize()
        dist.barrier()
        start = time.perf_counter()
        run()
        if home.type == "cuda":
            torch.cuda.synchronize()
        mine = torch.tensor(time.perf_counter() - start, dtype=torch.float64, device=home)
        dist.all_reduce(mine, dist.ReduceOp.MAX)
        taken.append(float(mine))
    return statistics.median(taken)


def measured(reshard: Reshard, module: ModuleType, home: Any) -> dict[str, float]:
    """Return the seconds by column. Columns that do not apply are left out."""
    import torch
    import torch.distributed as dist

    processes, dtype = module._HOST.processes, getattr(torch, module.DTYPE)
    device = processes.exchange.ranks[dist.get_rank()]
    shard = torch.zeros(module.source_shape(device), dtype=dtype, device=home)
    out = torch.empty(module.target_shape(device), dtype=dtype, device=home)
    found = {
        "exchange": seconds(lambda: module.reshard(shard, out=out, transport="exchange"), home)
    }
    wire = module.Wire([module._HOST], device, home, by_pairs=False)
    given = wire.at_once(*wire.buffers())
    found["all_to_all alone"] = seconds(lambda: dist.all_to_all_single(*given), home)
    if home.type == "cuda":
        inside = module.symmetric_source()
        found["symmetric"] = seconds(
            lambda: module.reshard(inside, out=out, transport="symmetric"), home
        )
    if hasattr(module, "reshard_dtensor"):
        found["DTensor"] = seconds(_redistribute(reshard, module, shard, home), home)
    return found


def _redistribute(
    reshard: Reshard, module: ModuleType, shard: Any, home: Any
) -> Callable[[], object]:
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard

    exchange = plan(reshard).exchange
    sides = (reshard.source, exchange.source), (reshard.target, exchange.target)
    before, after = (
        [Replicate() if dim is None else Shard(dim) for dim in triton_gpu.placements(*side)]
        for side in sides
    )
    mesh = init_device_mesh(home.type, tuple(size for _, size in reshard.source.mesh.axes))
    stride = torch.empty(module.SHAPE, device="meta").stride()
    x = DTensor.from_local(
        shard, mesh, before, run_check=False, shape=torch.Size(module.SHAPE), stride=stride
    )
    return lambda: x.redistribute(mesh, after)


def chosen(world: int, on_gpu: bool) -> dict[str, Reshard]:
    """Return the reshards of the corpus that have the ranks 0 to world - 1, in this order, on both
    sides."""
    return {
        name: reshard
        for name, reshard in corpus().items()
        if reshard.source.mesh == reshard.target.mesh
        and list(reshard.source.mesh.device_ids) == list(range(world))
        and (on_gpu or math.prod(reshard.shape) <= LARGEST_ON_CPU)
    }


def main() -> None:
    """Measure on every rank, and print on rank 0."""
    import torch
    import torch.distributed as dist

    on_gpu = torch.cuda.is_available()
    home = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(home)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    table = Table(title=f"Microseconds over {dist.get_world_size()} processes on {home.type}")
    table.add_column("reshard")
    table.add_column("MiB received")
    for column in COLUMNS:
        table.add_column(column, justify="right")
    for name, reshard in chosen(dist.get_world_size(), on_gpu).items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "triton_gpu.py"
            path.write_text(
                parts(
                    plan(reshard),
                    "triton_gpu",
                    "shardwright emit",
                    single_file=True,
                    features=("dtensor", "remembered", "symmetric"),
                )[0].text
            )
            found = measured(reshard, load(path), home)
        cells = (f"{found[c] * 1e6:.0f}" if c in found else "-" for c in COLUMNS)
        table.add_row(name, f"{plan(reshard).traffic.received_max / 2**20:.2f}", *cells)
    if dist.get_rank() == 0:
        Console().print(table)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
