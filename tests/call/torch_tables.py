"""`sw.reshard` of the table `REDISTRIBUTED`, among four processes of a gloo group.

Argument: a folder. Each process leaves a file where all is right; exit code 1 and a traceback where
something is wrong.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from dtensor_cases import TP_FIRST, WORLD, cut, placed, whole_of
from peer_tables import REDISTRIBUTED
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard

import shardwright as sw

WORDS = {"S0": Shard(0), "S1": Shard(1), "R": Replicate(), "P": Partial(), "F0": TP_FIRST[0]}


def placements(text: str) -> tuple[Placement, ...]:
    """Those of a word each."""
    return tuple(WORDS[word] for word in text.split(","))


def given(whole: torch.Tensor, mesh: DeviceMesh, source: str, order: str) -> DTensor:
    """A DTensor of a row; terms are all alike."""
    said = placements(source)
    dim = next((getattr(each, "dim", 0) for each in said if hasattr(each, "dim")), 0)
    entries = () if order == "-" else ((dim, tuple(map(int, order))),)
    if not any(each.is_partial() for each in said):
        return placed(whole, mesh, said, entries)
    local = cut(whole, mesh, said, None)
    extents = {"shape": whole.shape, "stride": whole.stride()}
    return DTensor.from_local(local, mesh, said, run_check=False, **extents)


def check(line: str) -> None:
    """The shard of a row by the definition, and what torch gathers."""
    sizes, extents, source, order, target = line.split()
    mesh = init_device_mesh("cpu", tuple(map(int, sizes.split(","))))
    whole = whole_of(tuple(map(int, extents.split("x"))))
    x = given(whole, mesh, source, order)
    terms = [mesh.size(axis) for axis, word in enumerate(source.split(",")) if word == "P"]
    total = whole * torch.tensor(terms).prod() if terms else whole
    y = sw.reshard(x, placements(target))
    assert y.placements == placements(target), line
    assert y.to_local().equal(cut(total, mesh, placements(target), None)), line
    assert y.full_tensor().equal(total), line


def run(rank: int, folder: str) -> None:
    """What one process does."""
    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", WORLD)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=WORLD)
    for line in REDISTRIBUTED.strip().splitlines()[1:]:
        check(line)
    dist.barrier()
    dist.destroy_process_group()
    (Path(folder) / f"{rank}.ok").touch()


if __name__ == "__main__":
    mp.start_processes(run, args=(sys.argv[1],), nprocs=WORLD, start_method="fork")
