"""`sw.reshard` of DTensors."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import Placement

from shardwright.codegen import registry
from shardwright.codegen.call.cache import load
from shardwright.codegen.operations.emit.emit import emit
from shardwright.codegen.operations.verify.pool import missing
from shardwright.ir.dtypes import dtype_of, is_floating
from shardwright.ir.errors import InputError, in_a_line
from shardwright.ir.reshard import Reshard
from shardwright.ir.sharding import OPERATORS, check_shape
from shardwright.ir.torch_placements import Placed, ascends, mesh_of_torch, placing

Move = Callable[[DTensor], DTensor]
Placements = tuple[Placement, ...]
LOG = logging.getLogger("shardwright")


def reshard_dtensor(x: DTensor, target: Any) -> DTensor:
    """Return a DTensor with new placements, possibly on another mesh; see `sw.reshard`.

    Every process of both meshes must call it; other processes may. Under torch.compile, the graph
    breaks here.
    """
    if torch.compiler.is_compiling():  # only under torch.compile: `disable` loads the compiler
        resharded: DTensor = torch.compiler.disable(_resharded)(x, target)
        return resharded
    return _resharded(x, target)


def _resharded(x: DTensor, target: Any) -> DTensor:
    """Run `reshard_dtensor` outside a compiled graph."""
    mesh, placements = target_of(target, x)
    if any(_is_masked(each) for each in x.placements):
        return _unmasked(x, mesh, placements)
    order = getattr(x._spec, "shard_order", None)  # torch before 2.13 has no shard_order
    where = x.device_mesh, x.placements, order, mesh, placements
    return _mover(tuple(x.shape), x.dtype, *where)(x)


def target_of(target: Any, x: DTensor) -> tuple[DeviceMesh, Placements]:
    pair = isinstance(target, tuple | list) and len(target) == 2
    there, placements = target if pair and isinstance(target[0], DeviceMesh) else (
        x.device_mesh, target,
    )  # fmt: skip
    if isinstance(placements, Placement):
        placements = (placements,)
    good = isinstance(placements, tuple | list) and len(placements) == there.ndim
    if not good or not all(isinstance(each, Placement) for each in placements):
        raise InputError(
            "the target must have one placement per dimension of the mesh",
            argument="target",
            got=in_a_line(target),
            expected=f"{there.ndim} of Shard(dim) or Replicate(), or (device_mesh, placements)",
        )
    return there, tuple(_counted(each, x.ndim) for each in placements)


def _counted(placement: Placement, rank: int) -> Placement:
    if type(placement) is Shard and -rank <= placement.dim < 0:
        return Shard(placement.dim + rank)
    return placement


def _is_masked(placement: Placement) -> bool:
    """Return whether a placement is an embedding's partial sum, which has a single-use mask."""
    return type(placement).__name__ == "_MaskPartial"


def _unmasked(x: DTensor, mesh: DeviceMesh, placements: Placements) -> DTensor:
    """Redistribute the result of an embedding with a split table by torch."""
    if mesh != x.device_mesh or any(map(_is_masked, placements)):
        raise InputError(
            "only torch can reduce the masked partial sum of an embedding",
            argument="x",
            got=f"placements {x.placements}",
            expected="x.redistribute(placements=…) to Shard or Replicate before sw.reshard",
        )
    return x.redistribute(placements=placements)


@functools.lru_cache(maxsize=4096)
def _mover(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    before: DeviceMesh,
    source: Placements,
    order: Any,
    after: DeviceMesh,
    target: Placements,
) -> Move:
    """Return a cached function that moves DTensors of this shape, dtype and sharding: torch's
    redistribution, or a module."""
    began = time.perf_counter()
    whole = _without_new_means(source, target)
    if whole != target:
        return _relabelled(_mover(shape, dtype, before, source, order, after, whole), target)
    who, move = _made(shape, dtype, before, source, order, after, target)
    took = time.perf_counter() - began
    LOG.info("%s%s from %s to %s: %s; ready in %.2f s", dtype, list(shape), source, target, who,
             took)  # fmt: skip
    return move


def _made(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    before: DeviceMesh,
    source: Placements,
    order: Any,
    after: DeviceMesh,
    target: Placements,
) -> tuple[str, Move]:
    """Return which executor moves DTensors of this description, in words, and its function."""
    redistributes = before == after and not any(
        new.is_partial() and new != old for old, new in zip(source, target, strict=True)
    )
    if redistributes:
        unknown = unknown_to_modules(shape, dtype, (*source, *target))
        if unknown:
            return f"torch itself, because modules do not support {unknown}", _by_torch(target)
    placed = Placed.all_of(source, order, before.shape)
    if redistributes and is_undivided(before, placed, shape):
        return "torch itself, because no axes make these strided shards", _by_torch(target)
    reshard = Reshard(shape, dtype, placed, target, mesh=before, target_mesh=after)
    strided = any(each.factor > 1 for each in (*placed, *map(Placed.of, target)))
    if redistributes and not strided and _one_collective(source, target, before.device_type):
        return "torch itself, in one collective", _by_torch(target)
    return _by_module(reshard, after, target)


def _without_new_means(source: Placements, target: Placements) -> Placements:
    """Return a target with Replicate for each `Partial("avg")` that the source does not have,
    because replicas of a value are also the terms of its mean."""
    old = dict(enumerate(source))
    return tuple(
        Replicate() if str(new) == str(Partial("avg")) and old.get(axis) != new else new
        for axis, new in enumerate(target)
    )


def _relabelled(move: Move, target: Placements) -> Move:
    """Return a function that moves DTensors and labels replicas as terms of a mean."""

    def moved(x: DTensor) -> DTensor:
        y = move(x)
        whole = {"shape": y.shape, "stride": y.stride()}
        return DTensor.from_local(y.to_local(), y.device_mesh, target, run_check=False, **whole)

    return moved


def unknown_to_modules(shape: tuple[int, ...], dtype: torch.dtype, placements: Placements) -> str:
    """Return the shape, dtype or placement that modules do not support, as text, or ""."""
    for check, value in ((check_shape, shape), (dtype_of, dtype)):
        try:
            check(value)
        except InputError:
            return str(value)
    others = [p for p in placements if isinstance(p, Partial) and p.reduce_op not in OPERATORS]
    return str(others[0]) if others else ""


def is_undivided(mesh: DeviceMesh, placed: tuple[Placed, ...], shape: tuple[int, ...]) -> bool:
    """Return whether no split of dimensions over mesh axes gives these strided shards."""
    own = mesh_of_torch(mesh)
    if all(each.factor == 1 for each in placed) or not all(ascends(own, n) for n in own.names):
        return False
    try:
        placing(own, placed, len(shape)).split(shape)
    except InputError:
        return True
    return False


def _one_collective(source: Placements, target: Placements, device: str) -> bool:
    """Return whether torch needs at most one collective, over one mesh dimension, with the minimum
    bytes: the other mesh dimensions keep their placements and do not split the same tensor
    dimension. On a CPU, torch uses an all-gather even if an all-to-all would suffice."""
    pairs = zip(source, target, strict=True)
    changed = [axis for axis, (old, new) in enumerate(pairs) if old != new]
    if len(changed) > 1:
        return False
    touched = {_dim(side[axis]) for axis in changed for side in (source, target)} - {None}
    stay = {_dim(each) for axis, each in enumerate(source) if axis not in changed}
    return not touched & stay and (len(touched) < 2 or device != "cpu")


def _dim(placement: Placement) -> int | None:
    return getattr(placement, "dim", None)


def _by_torch(target: Placements) -> Move:
    def move(x: DTensor) -> DTensor:
        moved: DTensor = x.redistribute(placements=target)
        return moved

    return move


def _by_module(reshard: Reshard, mesh: DeviceMesh, target: Placements) -> tuple[str, Move]:
    """Return a module's name and received bytes in words, and the function that reshards with it. A
    rank in neither mesh takes no part and gets an empty shard."""
    name = next(n for n in registry.NAMES if "torch" in registry.runtime(n).packages)
    lacking, _, install = missing(name).partition(": ")
    if lacking:
        raise InputError(
            "resharding a DTensor needs packages that are not installed",
            argument="x",
            got=lacking,
            expected=install,
        )
    gradient = is_floating(reshard.dtype)
    bundle = emit(reshard, (name,), gradient=gradient, features=("dtensor",))
    module = load(bundle, name)
    traffic = bundle.plan.traffic
    who = f"{name}, the busiest rank receives {traffic.received_max:,} bytes"
    ranks = sorted({*reshard.source.mesh.device_ids, *reshard.target.mesh.device_ids})
    group = group_of(tuple(ranks)) if dist.get_rank() in ranks else None

    def move(x: DTensor) -> DTensor:
        if dist.get_rank() not in ranks:
            local, whole = x.to_local().new_empty(0), {"shape": x.shape, "stride": x.stride()}
            return DTensor.from_local(local, mesh, target, run_check=False, **whole)
        moved: DTensor = module.reshard_dtensor(x, mesh, group)
        return moved

    return who, move


@functools.cache
def group_of(ranks: tuple[int, ...]) -> dist.ProcessGroup:
    """Return the process group of some ranks. Only these ranks need to call this function."""
    world = dist.group.WORLD
    if world is not None and dist.get_process_group_ranks(world) == list(ranks):
        return world
    made: dist.ProcessGroup = dist.new_group(list(ranks), use_local_synchronization=True)
    return made
