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
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.placement_types import Placement

from shardwright.codegen.backends import registry
from shardwright.codegen.call.cache import load
from shardwright.codegen.emit.emit import emit
from shardwright.codegen.verify.pool import missing
from shardwright.ir.dtypes import is_floating
from shardwright.ir.errors import InputError, in_a_line
from shardwright.ir.reshard import Reshard

Move = Callable[[DTensor], DTensor]
LOG = logging.getLogger("shardwright")


def reshard_dtensor(x: DTensor, target: Any) -> DTensor:
    """Return a DTensor with placements, and perhaps on another mesh; see `sw.reshard`.

    Every process of both meshes calls it.
    """
    mesh, placements = _target(target, x.device_mesh)
    where = x.device_mesh, x.placements, mesh, placements
    return _mover(tuple(x.shape), x.dtype, *where)(x)


def _target(target: Any, mesh: DeviceMesh) -> tuple[DeviceMesh, tuple[Placement, ...]]:
    """Return the mesh and placements that a target says."""
    pair = isinstance(target, tuple | list) and len(target) == 2
    given = target if pair and isinstance(target[0], DeviceMesh) else (mesh, target)
    there, placements = given
    if isinstance(placements, Placement):
        placements = (placements,)
    good = isinstance(placements, tuple | list) and len(placements) == there.ndim
    if not good or not all(isinstance(each, Placement) for each in placements):
        raise InputError(
            "a DTensor is resharded to a placement for each dimension of the mesh",
            argument="target",
            got=in_a_line(target),
            expected=f"{there.ndim} of Shard(dim) and Replicate(), or (device_mesh, placements)",
        )
    return there, tuple(placements)


@functools.lru_cache(maxsize=4096)
def _mover(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    before: DeviceMesh,
    source: tuple[Placement, ...],
    after: DeviceMesh,
    target: tuple[Placement, ...],
) -> Move:
    """Return what moves DTensors of a description: torch's redistribution, or a module."""
    began = time.perf_counter()
    reshard = Reshard(shape, dtype, source, target, mesh=before, target_mesh=after)
    if before == after and _one_collective(source, target, before.device_type):
        who, move = "torch itself, in one collective", _by_torch(target)
    else:
        who, move = _by_module(reshard, after)
    took = time.perf_counter() - began
    LOG.info("%s%s from %s to %s: %s; ready in %.2f s", dtype, list(shape), source, target, who,
             took)  # fmt: skip
    return move


def _one_collective(
    source: tuple[Placement, ...], target: tuple[Placement, ...], device: str
) -> bool:
    """Return whether torch needs one collective or none, over one dimension of the mesh, which
    moves as few bytes as can be: the others stay, and do not split what it splits. On a CPU torch
    gathers where an all-to-all would do."""
    pairs = zip(source, target, strict=True)
    changed = [axis for axis, (old, new) in enumerate(pairs) if old != new]
    if len(changed) > 1:
        return False
    touched = {_dim(side[axis]) for axis in changed for side in (source, target)} - {None}
    stay = {_dim(each) for axis, each in enumerate(source) if axis not in changed}
    return not touched & stay and (len(touched) < 2 or device != "cpu")


def _dim(placement: Placement) -> int | None:
    """Return the dimension that a placement splits."""
    return getattr(placement, "dim", None)


def _by_torch(target: tuple[Placement, ...]) -> Move:
    def move(x: DTensor) -> DTensor:
        moved: DTensor = x.redistribute(placements=target)
        return moved

    return move


def _by_module(reshard: Reshard, mesh: DeviceMesh) -> tuple[str, Move]:
    """Return a module's name with what it does among the ranks of both meshes."""
    name = next(n for n in registry.NAMES if "torch" in registry.runtime(n).packages)
    lacking, _, install = missing(name).partition(": ")
    if lacking:
        raise InputError(
            "DTensors are resharded by a module that needs what is not here",
            argument="x",
            got=lacking,
            expected=install,
        )
    bundle = emit(reshard, (name,), gradient=is_floating(reshard.dtype))
    module = load(bundle, name)
    traffic = bundle.plan.traffic
    who = f"{name}, the busiest rank receives {traffic.received_max:,} bytes"
    ranks = sorted({*reshard.source.mesh.device_ids, *reshard.target.mesh.device_ids})
    group = _group(tuple(ranks))

    def move(x: DTensor) -> DTensor:
        moved: DTensor = module.reshard_dtensor(x, mesh, group)
        return moved

    return who, move


@functools.cache
def _group(ranks: tuple[int, ...]) -> dist.ProcessGroup:
    """Return the process group of some ranks, which alone make it."""
    world = dist.group.WORLD
    if world is not None and dist.get_process_group_ranks(world) == list(ranks):
        return world
    made: dist.ProcessGroup = dist.new_group(list(ranks), use_local_synchronization=True)
    return made
