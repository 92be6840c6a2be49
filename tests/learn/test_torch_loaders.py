"""Loaders that torch has, learned on the CPU in a stand-in group: one process is each rank in turn.

What was learned (torch 2.13) stands beside each of them.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

import shardwright as sw

pytest.importorskip("torch", reason="torch is not installed")
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

Tensors = dict[str, torch.Tensor]


@contextlib.contextmanager
def group(rank: int, axes: dict[str, int]) -> Iterator[DeviceMesh]:
    """A group whose collectives do nothing, as a rank of a mesh sees it."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    size = 1
    for each in axes.values():
        size *= each
    dist.init_process_group("fake", rank=rank, world_size=size, store=FakeStore())
    try:
        yield init_device_mesh("cpu", tuple(axes.values()), mesh_dim_names=tuple(axes))
    finally:
        dist.destroy_process_group()


class Mlp(torch.nn.Module):
    """Two linear layers without a bias, of given weights."""

    def __init__(self, tensors: Tensors) -> None:
        super().__init__()
        for name, weight in tensors.items():
            layer = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
            layer.weight = torch.nn.Parameter(weight)
            setattr(self, name, layer)


def stored(model: torch.nn.Module) -> dict[str, Any]:
    return {name.removesuffix(".weight"): p.data for name, p in model.named_parameters()}


def chunks(rank: int, tensors: Tensors) -> dict[str, Any]:
    """torch.chunk: ceil(K / N) rows, the last ranks less."""
    return {name: x.chunk(4)[rank] for name, x in tensors.items()}


def dtensors(rank: int, tensors: Tensors) -> dict[str, Any]:
    """DTensors: up by rows on both axes of the mesh, down by columns on one."""
    with group(rank, {"dp": 2, "tp": 2}) as mesh:
        placements = {"up": (Shard(0), Shard(0)), "down": (Replicate(), Shard(1))}
        return {
            name: distribute_tensor(x, mesh, placements[name], src_data_rank=None).to_local()
            for name, x in tensors.items()
        }


def fsdp(rank: int, tensors: Tensors) -> dict[str, Any]:
    """FSDP2 over four ranks."""
    with group(rank, {"dp": 4}) as mesh:
        return {
            name: x.to_local() for name, x in stored(fully_shard(Mlp(tensors), mesh=mesh)).items()
        }


def fsdp_on_tp(rank: int, tensors: Tensors) -> dict[str, Any]:
    """FSDP2 on TP: both cut the rows of up, TP first."""
    with group(rank, {"dp": 2, "tp": 2}) as mesh:
        plan = {
            "up": ColwiseParallel(),
            "down": RowwiseParallel(),
        }
        model = parallelize_module(Mlp(tensors), mesh["tp"], plan, src_data_rank=None)
        model = fully_shard(model, mesh=mesh["dp"])
        return {name: x.to_local() for name, x in stored(model).items()}


def checkpoint(rank: int, tensors: Tensors) -> dict[str, Any]:
    """A checkpoint of whole tensors, which torch.distributed.checkpoint reads into DTensors."""
    with tempfile.TemporaryDirectory() as folder, group(rank, {"dp": 2, "tp": 2}) as mesh:
        dcp.save(dict(tensors), checkpoint_id=folder, no_dist=True)
        placements = [Shard(1), Shard(0)]
        state = {
            name: distribute_tensor(torch.zeros_like(x), mesh, placements, src_data_rank=None)
            for name, x in tensors.items()
        }
        dcp.load(state, checkpoint_id=folder, no_dist=True)
        return {name: x.to_local() for name, x in state.items()}


Shapes = dict[str, tuple[int, int]]
UNEVEN: Shapes = {"up": (10, 4), "down": (4, 10)}
CASES: list[tuple[Any, str, Shapes, dict[str, str]]] = [
    (chunks, "dp=4", UNEVEN, {"up": 'up[{"dp"}]', "down": 'down[{"dp"}]'}),
    (dtensors, "dp=2,tp=2", UNEVEN, {"up": 'up[{"dp", "tp"} nested]', "down": 'down[{}, {"tp"}]'}),
    (fsdp, "dp=4", UNEVEN, {"up": 'up[{"dp"}]', "down": 'down[{"dp"}]'}),
    (
        fsdp_on_tp,
        "dp=2,tp=2",
        {"up": (12, 4), "down": (4, 12)},
        {"up": 'up[{"tp", "dp"}]', "down": 'down[{"dp"}, {"tp"}]'},
    ),
    (
        checkpoint,
        "dp=2,tp=2",
        UNEVEN,
        {"up": 'up[{"tp"}, {"dp"}]', "down": 'down[{"tp"}, {"dp"}]'},
    ),
]


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize(
    ("load", "mesh", "shapes", "expected"),
    [
        pytest.param(
            *case, id=case[0].__name__, marks=[pytest.mark.slow] * (case[0] is not fsdp_on_tp)
        )
        for case in CASES
    ],
)
def test_loader(load: Any, mesh: str, shapes: Shapes, expected: dict[str, str]) -> None:
    """The layout is as people would write it, from tensors of bfloat16."""
    logical = {name: torch.empty(shape, dtype=torch.bfloat16) for name, shape in shapes.items()}
    learned = sw.learn(load, logical=logical, ranks=mesh)
    assert learned.findings == ()
    assert {name: str(each) for name, each in learned.stored.buffers.items()} == expected
