"""`sw.reshard` of the DTensors of torch's own tests, among four processes of a gloo group.

Argument: a folder. Each process leaves a file where all is right; exit code 1 and a traceback where
something is wrong.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.distributed.tensor.placement_types import _StridedShard

import shardwright as sw
from shardwright.codegen.call import cache

WORLD = 4
S0, S1, R, SUM, AVG = Shard(0), Shard(1), Replicate(), Partial(), Partial("avg")
TP_FIRST = (_StridedShard(0, split_factor=2), S0)  # as FSDP2 over tensor parallelism
ORDER = ((0, (1, 0)),)  # the second mesh dimension cuts first

MOVES = (
    # shape, source, its shard_order, target
    ((8,), (S0, S0), ORDER, (R, R)),
    ((7, 4), (S0, S0), ORDER, (S1, S0)),
    ((8, 4), TP_FIRST, None, (S0, S0)),
    ((5, 4), TP_FIRST, None, (R, S1)),
    ((5, 4), (S0, S1), None, TP_FIRST),
    ((6, 4), (R, S0), None, (SUM, S0)),
    ((6, 4), (R, S0), None, (AVG, S1)),
)
"""Modules move these: placements of both sides, with gradients."""

REDISTRIBUTED = (
    # shape, dtype, source, target
    ((4, 4), torch.complex64, (S0, S1), (S1, S0)),
    ((4, 4), torch.float8_e4m3fnuz, (R, R), (S0, S1)),  # gloo sends none
    ((0, 4), torch.float32, (S0, S1), (S1, S0)),
    ((4, 4), torch.float32, (AVG, R), (S0, S1)),
)
"""torch moves these: modules do not know the element type, the shape or the operator."""

DESCENDING = (
    # ranks of the mesh, source, target
    ([[1, 0], [3, 2]], (S0, S0), (R, S0)),
    ([[1, 0], [3, 2]], (R, R), (R, S0)),
    ([[2, 3], [0, 1]], (S0, R), (R, R)),
)
"""Meshes with ranks that descend along a dimension that splits the tensor."""


def whole_of(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """The numbers 0, 1, 2, …"""
    return torch.arange(float(torch.Size(shape).numel())).view(shape).to(dtype)


def cut(whole: torch.Tensor, mesh: DeviceMesh, placements: Any, order: Any) -> torch.Tensor:
    """The shard of this rank, by the definition: chunks of chunks, in the order of the axes."""
    place = mesh.get_coordinate()
    assert place is not None
    axes = [*range(mesh.ndim)]
    if order or any(type(each) is _StridedShard for each in placements):
        axes = [1, 0]
    for axis in axes:
        dim = getattr(placements[axis], "dim", None)
        if dim is not None:
            parts = torch.chunk(whole, mesh.size(axis), dim)
            whole = parts[place[axis]] if place[axis] < len(parts) else whole.narrow(dim, 0, 0)
    return whole.contiguous()


def placed(whole: torch.Tensor, mesh: DeviceMesh, placements: Any, order: Any) -> DTensor:
    """A DTensor of those values."""
    extents = {"shape": whole.shape, "stride": whole.stride()}
    local = cut(whole, mesh, placements, order)
    x = DTensor.from_local(local, mesh, placements, run_check=False, **extents)
    if order:
        entry = sys.modules[type(x._spec).__module__].ShardOrderEntry
        x._spec.shard_order = tuple(entry(*each) for each in order)
    return x.requires_grad_() if whole.dtype == torch.float32 else x


def moves(mesh: DeviceMesh) -> None:
    """Values by the definition, by what torch gathers, and gradients."""
    for shape, source, order, target in MOVES:
        whole = whole_of(shape)
        x = placed(whole, mesh, source, order)
        y = sw.reshard(x, target)
        assert y.placements == target, (y.placements, target)
        if SUM not in target:
            assert y.to_local().equal(cut(whole, mesh, target, None)), (shape, source, target)
        assert y.full_tensor().equal(whole), (shape, source, target)
        (y.full_tensor() * whole).sum().backward()
        assert x.grad is not None
        assert x.grad.to_local().equal(x.to_local()), (shape, source, target)
        assert x.grad.full_tensor().equal(whole), (shape, source, target)


def redistributed(mesh: DeviceMesh) -> None:
    """What torch makes of the same."""
    for shape, dtype, source, target in REDISTRIBUTED:
        x = placed(whole_of(shape, dtype), mesh, source, None)
        y, wanted = sw.reshard(x, target), x.redistribute(placements=target)
        assert y.placements == wanted.placements
        assert torch.equal(y.to_local().view(torch.uint8), wanted.to_local().view(torch.uint8))


def refused(call: Callable[[], object]) -> str:
    """The message of an error."""
    try:
        call()
    except sw.InputError as error:
        return str(error)
    raise AssertionError("not refused")


def descending(_: DeviceMesh) -> None:
    """torch contradicts itself there, so that every path refuses."""
    for ranks, source, target in DESCENDING:
        mesh = DeviceMesh("cpu", ranks)
        x = placed(whole_of((8, 2)), mesh, source, None)
        said = refused(lambda x=x, target=target: sw.reshard(x, target))
        assert "ranks must ascend along a mesh dimension that splits a tensor" in said, said
    mesh = DeviceMesh("cpu", [[1, 0], [3, 2]])
    split = distribute_tensor(torch.arange(8.0), mesh, (R, R)).redistribute(placements=(S0, S0))
    assert not split.full_tensor().equal(torch.arange(8.0)), "torch agrees with itself: allow it"
    kept = placed(whole_of((8, 2)), mesh, (R, S0), None)
    kept = DTensor.from_local(kept.to_local().detach(), mesh, (SUM, R), run_check=False)
    assert sw.reshard(kept, (R, R)).to_local().equal(2 * kept.to_local())


def submesh(mesh: DeviceMesh) -> None:
    """All ranks call for a DTensor that some of them hold."""
    part = DeviceMesh("cpu", [1, 2])
    x = distribute_tensor(whole_of((4, 4)), part, [S0], src_data_rank=None)
    y = sw.reshard(x, [S1])
    assert y.shape == (4, 4)
    assert y.placements == (S1,)
    wanted = {1: (4, 2), 2: (4, 2)}.get(dist.get_rank(), (0,))
    assert y.to_local().shape == wanted
    if part.get_coordinate() is not None:
        assert y.full_tensor().equal(whole_of((4, 4)))


def trained(mesh: DeviceMesh) -> None:
    """A parameter of FSDP2 over tensor parallelism, of an extent that does not divide."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 6, bias=False)
    whole = model.weight.detach().clone()
    parallelize_module(model, mesh["tp"], ColwiseParallel())
    fully_shard(model, mesh=mesh["dp"])
    assert model.weight.placements == TP_FIRST
    y = sw.reshard(model.weight, (R, R))
    assert y.to_local().equal(whole)
    y.to_local().sum().backward()
    assert model.weight.grad is not None
    assert model.weight.grad.placements == TP_FIRST


def masked(mesh: DeviceMesh) -> None:
    """The result of an embedding whose table is split by rows has a mask."""
    table = torch.nn.Parameter(placed(whole_of((6, 4)), mesh, (R, S0), None).detach())
    chosen = distribute_tensor(torch.tensor([0, 5, 3, 2]), mesh, (R, R), src_data_rank=None)
    x = torch.nn.functional.embedding(chosen, table)
    assert "MaskP" in str(x.placements)
    assert sw.reshard(x, (R, R)).to_local().equal(whole_of((6, 4))[[0, 5, 3, 2]])
    plain = placed(whole_of((6, 4)), mesh, (R, S0), None)
    said = refused(lambda: sw.reshard(plain, x.placements))
    assert "MaskP" in said, said


def compiled(mesh: DeviceMesh) -> None:
    """torch.compile breaks its graph there."""
    x = distribute_tensor(whole_of((8, 4)), mesh, (S0, S1), src_data_rank=None)
    made = torch.compile(lambda x: sw.reshard(2 * x, (S1, S0)) + 1, backend="eager")
    assert made(x).full_tensor().equal(2 * whole_of((8, 4)) + 1)


def described(mesh: DeviceMesh) -> None:
    """A description reads the order of a DTensor; its placements alone do not say it."""
    x = placed(whole_of((8,)), mesh, (S0, S0), ORDER)
    reshard = sw.Reshard((8,), "f32", x, "[Replicate(), Replicate()]")
    assert str(reshard.source) == '[{"dim_1", "dim_0"}]'
    module = cache.load(sw.emit(reshard, backends=("triton_gpu",), gradient=True), "triton_gpu")
    assert module.reshard_dtensor(x).to_local().equal(whole_of((8,)))
    with contextlib.suppress(ValueError):
        module.reshard_dtensor(placed(whole_of((8,)), mesh, (S0, S0), None))
        raise AssertionError("takes another order of axes")


class Said(logging.Handler):
    """Keeps the messages of a log."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def reported(mesh: DeviceMesh) -> None:
    """A parameter of FSDP2 over tensor parallelism in other layouts (pytorch/pytorch#121062)."""
    log, said = logging.getLogger("shardwright"), Said()
    log.addHandler(said)
    log.setLevel(logging.INFO)
    whole, line = whole_of((16, 4)), DeviceMesh("cpu", [*range(WORLD)])
    x = placed(whole, mesh, TP_FIRST, None)
    for there, target in ((mesh, (R, S0)), (mesh, (R, R)), (mesh, (S1, S0)), (line, (S0,))):
        for back in (TP_FIRST, (S0, S0)):
            y = sw.reshard(x, (there, target))
            assert y.to_local().equal(cut(whole, there, target, None)), target
            assert sw.reshard(y, (mesh, back)).to_local().equal(cut(whole, mesh, back, None))
    assert "triton_gpu, the busiest rank receives 64 bytes" in said.messages[0], said.messages[0]


def trees(mesh: DeviceMesh) -> None:
    """Trees go in one exchange, to other ranks too; gradients and sums by themselves."""
    log, said = logging.getLogger("shardwright"), Said()
    log.addHandler(said)
    log.setLevel(logging.INFO)
    wholes = {"w": whole_of((5, 4)), "b": whole_of((7,)), "c": whole_of((4, 4), torch.bfloat16)}
    sides = {"w": (TP_FIRST, None), "b": ((S0, S0), ORDER), "c": ((S1, R), None)}
    tree = {n: placed(wholes[n], mesh, *sides[n]).requires_grad_(False) for n in sides}
    server = DeviceMesh("cpu", [1, 2])
    target = {"inner": {"w": (server, [S1]), "b": (server, [R]), "c": (mesh, (R, S0))}}
    for _ in range(2):
        moved = sw.reshard({"inner": tree}, target)["inner"]
        for name, (there, placements) in target["inner"].items():
            y = moved[name]
            assert (y.device_mesh, y.placements) == (there, tuple(placements))
            if there.get_coordinate() is not None:
                assert y.to_local().equal(cut(wholes[name], there, placements, None)), name
    assert len(said.messages) == 1, said.messages
    assert said.messages[0].startswith("3 tensors in one exchange: torch_model, the busiest rank")
    grown = [*tree.values(), tree["w"].clone().requires_grad_()]
    found = sw.reshard(grown, (R, R))
    for y, x in zip(found, (*wholes.values(), wholes["w"]), strict=True):
        assert y.to_local().equal(x)
    found[-1].to_local().sum().backward()
    assert grown[-1].grad is not None
    sums = DTensor.from_local(whole_of((5, 4)), mesh, (SUM, R), run_check=False)
    found = sw.reshard({"w": tree["w"], "s": sums}, (R, R))
    assert found["s"].to_local().equal(2 * whole_of((5, 4)))
    log.removeHandler(said)
    mistaken = refused(lambda: sw.reshard({**tree, "bias": torch.ones(2)}, (R, R)))
    assert mistaken.startswith("x, bias: every leaf of the tree must be a DTensor"), mistaken
    mistaken = refused(lambda: sw.reshard(tree, {"w": (R, R), "b": [R], "c": (R, R)}))
    assert mistaken.startswith("target, b: the target must have one placement per dimension"), (
        mistaken
    )


TASKS = (
    *(moves, redistributed, descending, submesh, trained, masked, compiled, described, reported),
    trees,
)


def run(rank: int, folder: str) -> None:
    """What one process does."""
    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", WORLD)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=WORLD)
    mesh = init_device_mesh("cpu", (2, 2))
    for task in TASKS:
        task(mesh)
        (Path(folder) / f"{task.__name__}.{rank}.ok").touch()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    # Forked processes leave without Python's own end, in which threads of gloo may abort them
    # (`tests/leave_at_once.py`).
    mp.start_processes(run, args=(sys.argv[1],), nprocs=WORLD, start_method="fork")
