"""Time `sw.reshard` after its first call, next to JAX's own reshards, eager and under jit, and to
torch's own reshards of DTensors.

Seconds are the CPU time of all threads of the calling process, so that other work on the machine
counts little. They are the minimum over many rounds, in which all functions take turns: even if two
functions are the same program, their medians differ by a quarter on a loaded machine. Each table is
measured in separate processes.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROUNDS = 25
SIDE, FEWER = 4096, 2048
TO = ("P('y', 'x')", "P(('y', 'x'), None)", "P(None, 'y')", "P(None, ('x', 'y'))", "P('x', None)")
"""The targets of an array of SIDE x SIDE float32 that is split P('x', 'y') over 2 x 4 devices."""
PLACEMENTS = ("Shard(1), Shard(0)", "Shard(0), Shard(0)", "Replicate(), Shard(1)")
"""The targets of a DTensor of FEWER x FEWER that is placed [Shard(0), Shard(1)] over 2 x 2
processes."""


def main() -> None:
    print("Milliseconds after the first call\n")
    heads = (
        f"float32[{SIDE}, {SIDE}] from P('x', 'y') to",
        "how",
        "sw.reshard",
        "best other",
        "which",
        "ratio",
    )
    _table(heads, _answers("jax", 8))
    heads = (
        f"[{FEWER}, {FEWER}] from Shard(0), Shard(1) to",
        "how",
        "sw.reshard",
        "best other",
        "which",
        "ratio",
    )
    _table(heads, _answers("torch", 4))


def _answers(which: str, devices: int) -> list[list[Any]]:
    with tempfile.TemporaryDirectory() as folder:
        flags = f"--xla_force_host_platform_device_count={devices}"
        env = {**os.environ, "SHARDWRIGHT_CACHE": folder, "XLA_FLAGS": flags}
        env |= {"JAX_PLATFORMS": "cpu"}
        done = subprocess.run(
            [sys.executable, "-m", "bench.one_call", which, folder],
            env=env,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    rows: list[list[Any]] = json.loads(done.stdout.splitlines()[-1])
    return rows


def _table(heads: tuple[str, ...], rows: list[list[Any]]) -> None:
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    ratios = []
    for target, how, times in rows:
        ours = times.pop("sw.reshard")
        which = min(times, key=times.__getitem__)
        ratios.append(ours / times[which])
        figures = f"{1e3 * ours:.1f} | {1e3 * times[which]:.1f} | {which} | {ratios[-1]:.2f}"
        print(f"| {target} | {how} | {figures} |")
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    print(f"\ngeometric mean {mean:.2f}, worst {max(ratios):.2f}\n")


def measured(ways: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Return the minimum seconds of each function, by name, after two untimed calls."""
    for way in (*ways.values(), *ways.values()):
        way()
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            began = time.process_time()
            way()
            taken[name].append(time.process_time() - began)
    return {name: min(times) for name, times in taken.items()}


def in_jax() -> list[list[Any]]:
    """Return the rows for JAX arrays, eager and under jit."""
    import jax
    from jax.sharding import AxisType, NamedSharding
    from jax.sharding import PartitionSpec as P

    import shardwright as sw

    mesh = jax.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    jax.set_mesh(mesh)
    x = jax.device_put(
        jax.numpy.arange(SIDE * SIDE, dtype="float32").reshape(SIDE, SIDE),
        NamedSharding(mesh, P("x", "y")),
    )
    rows: list[list[Any]] = []
    for text in TO:
        target = NamedSharding(mesh, eval(text, {"P": P}))
        ways = {
            "sw.reshard": lambda x, t=target: sw.reshard(x, t),
            "jax.device_put": lambda x, t=target: jax.device_put(x, t),
            "jax.sharding.reshard": lambda x, t=target: jax.sharding.reshard(x, t),
        }
        eager = {n: lambda way=way: way(x).block_until_ready() for n, way in ways.items()}
        jits = {n: jax.jit(way) for n, way in ways.items()}
        jitted = {n: lambda way=way: way(x).block_until_ready() for n, way in jits.items()}
        rows += [[text, "eager", measured(eager)], [text, "in a jit", measured(jitted)]]
    return rows


def in_torch(rank: int, folder: str) -> None:
    """Measure DTensors as one of four processes. The first process writes the rows to `folder`."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    import shardwright as sw

    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", 4)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=4)
    mesh = init_device_mesh("cpu", (2, 2))
    x = distribute_tensor(torch.zeros(FEWER, FEWER), mesh, (Shard(0), Shard(1)), src_data_rank=None)
    rows = []
    for text in PLACEMENTS:
        target = tuple(eval(text, {"Shard": Shard, "Replicate": Replicate}))
        ways = {
            "sw.reshard": lambda t=target: sw.reshard(x, t),
            "redistribute": lambda t=target: x.redistribute(placements=t),
        }
        rows.append([text, "DTensor", measured(ways)])
    if rank == 0:
        Path(folder, "rows.json").write_text(json.dumps(rows))
    dist.barrier()
    dist.destroy_process_group()


def _worker(which: str, folder: str) -> None:
    if which == "jax":
        print(json.dumps(in_jax()))
        return
    import torch.multiprocessing as mp

    # Forked processes skip Python's own exit, in which gloo's threads may abort them.
    mp.start_processes(in_torch, args=(folder,), nprocs=4, start_method="fork")
    print(Path(folder, "rows.json").read_text())


if __name__ == "__main__":
    _worker(*sys.argv[1:])
