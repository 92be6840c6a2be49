"""`sw.reshard` of DTensors among six processes of a gloo group.

Arguments: a folder, and how many pairs of placements. Each process leaves a file where all is
right; exit code 1 and a traceback where something is wrong.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

import shardwright as sw

WORLD = 6
WHOLE = torch.arange(70.0).view(10, 7)
ROWS, COLUMNS, REPLICAS = Shard(0), Shard(1), Replicate()
PAIRS = (
    ((ROWS, COLUMNS), (COLUMNS, ROWS)),
    ((ROWS, COLUMNS), (REPLICAS, COLUMNS)),
    ((ROWS, COLUMNS), (ROWS, ROWS)),
    ((ROWS, ROWS), (REPLICAS, ROWS)),
    ((REPLICAS, ROWS), (COLUMNS, REPLICAS)),
    ((REPLICAS, REPLICAS), (ROWS, COLUMNS)),
    ((ROWS, REPLICAS), (ROWS, REPLICAS)),
)


def is_right(found: DTensor, mesh: DeviceMesh, placements: tuple) -> None:
    """A process has what torch itself gives it."""
    wanted = distribute_tensor(WHOLE, mesh, placements, src_data_rank=None)
    assert found.placements == placements
    assert found.shape == WHOLE.shape
    if mesh.get_coordinate() is not None:
        assert found.to_local().equal(wanted.to_local())


def run(rank: int, folder: str, count: int) -> None:
    """What one process does."""
    store = dist.FileStore(f"{folder}/store", WORLD)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=WORLD)
    if rank == 0:
        logging.basicConfig(stream=sys.stdout, format="%(message)s")
        logging.getLogger("shardwright").setLevel(logging.INFO)
    mesh = init_device_mesh("cpu", (2, 3))
    for source, target in PAIRS[:count]:
        x = distribute_tensor(WHOLE, mesh, source, src_data_rank=None).requires_grad_()
        y = sw.reshard(x, target)
        is_right(y, mesh, target)
        (y * y).sum().backward()
        assert x.grad is not None
        assert x.grad.full_tensor().equal(2 * WHOLE)
        is_right(sw.reshard(x.detach(), (mesh, list(target))), mesh, target)
    terms = DTensor.from_local(WHOLE, mesh, (Partial(), REPLICAS), run_check=False)
    for target in ((ROWS, REPLICAS), (COLUMNS, ROWS), (REPLICAS, COLUMNS)):
        assert sw.reshard(terms, target).full_tensor().equal(2 * WHOLE)
    elsewhere(rank, mesh)
    dist.barrier()
    dist.destroy_process_group()
    (Path(folder) / f"{rank}.ok").touch()


def elsewhere(rank: int, mesh: DeviceMesh) -> None:
    """To another mesh, some of whose devices are others; within a mesh of some processes."""
    server = DeviceMesh("cpu", torch.tensor([[1, 3], [4, 5]]))
    x = distribute_tensor(WHOLE, mesh, (ROWS, COLUMNS), src_data_rank=None)
    is_right(sw.reshard(x, (server, (COLUMNS, REPLICAS))), server, (COLUMNS, REPLICAS))
    if rank in (1, 3, 4, 5):
        x = distribute_tensor(WHOLE, server, (ROWS, COLUMNS), src_data_rank=None)
        is_right(sw.reshard(x, (COLUMNS, ROWS)), server, (COLUMNS, ROWS))


if __name__ == "__main__":
    # Forked processes leave without Python's own end, in which threads of gloo may abort them
    # (`tests/leave_at_once.py`).
    given = (sys.argv[1], int(sys.argv[2]))
    mp.start_processes(run, args=given, nprocs=WORLD, start_method="fork")
