"""`sw.reshard` of a tree of DTensors."""

from __future__ import annotations

import functools
import logging
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from shardwright.codegen.call.dtensors import (
    Placements,
    group_of,
    is_undivided,
    reshard_dtensor,
    target_of,
    unknown_to_modules,
)
from shardwright.codegen.call.sync import exchange
from shardwright.codegen.call.trees import Leaf, alone, moved
from shardwright.ir.errors import InputError, in_a_line
from shardwright.ir.torch_placements import Placed, mesh_of_torch, placed_of

LOG = logging.getLogger("shardwright")


class DescribedDTensor(NamedTuple):
    """The description of a DTensor that moves in the common exchange."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    before: DeviceMesh
    source: tuple[Placed, ...]
    after: DeviceMesh
    target: Placements


def reshard_dtensors(leaves: list[Leaf]) -> list[DTensor]:
    """Return DTensors with new placements. DTensors that move between devices share one exchange;
    all others, and those that need a gradient, are resharded one at a time."""
    every = [alone(leaf, _placed) for leaf in leaves]
    return moved(every, _moves, _single, _exchanged)


def _single(leaf: Leaf) -> DTensor:
    return reshard_dtensor(leaf.value, leaf.target)


def _exchanged(leaves: list[Leaf]) -> list[DTensor]:
    described = tuple(
        (
            leaf.name,
            DescribedDTensor(tuple(x.shape), x.dtype, x.device_mesh, placed_of(x), *leaf.target),
        )
        for leaf in leaves
        for x in [leaf.value]
    )
    return _mover(described)([leaf.value for leaf in leaves])


def _placed(leaf: Leaf) -> Leaf:
    """Resolve a leaf's target to a mesh and placements. Raises InputError unless the leaf is a
    DTensor without a source."""
    if not isinstance(leaf.value, DTensor):
        raise InputError(
            "every leaf of the tree must be a DTensor",
            argument="x",
            got=in_a_line(leaf.value),
            expected="a DTensor: distribute_tensor(x, device_mesh, placements)",
        )
    if leaf.source is not None:
        raise InputError(
            "a DTensor already has placements, so it takes no source",
            argument="source",
            got=in_a_line(leaf.source),
            expected="sw.reshard(x, target)",
        )
    return leaf._replace(target=target_of(leaf.target, leaf.value))


def _moves(leaf: Leaf) -> bool:
    """Return whether a DTensor moves in the common exchange: its mesh or placements change, it
    needs no gradient, neither side is a partial sum, and modules support it."""
    x, (after, target) = leaf.value, leaf.target
    if x.requires_grad and torch.is_grad_enabled():
        return False
    if (after, target) == (x.device_mesh, x.placements) or not x.numel():
        return False
    placed = placed_of(x)
    both = *x.placements, *target
    return (
        not any(each.is_partial() for each in both)
        and not unknown_to_modules(tuple(x.shape), x.dtype, both)
        and not is_undivided(x.device_mesh, placed, tuple(x.shape))
    )


@functools.lru_cache(maxsize=64)
def _mover(described: tuple[tuple[str, DescribedDTensor], ...]) -> Callable[[list[Any]], list[Any]]:
    """Return a cached function that moves DTensors of these descriptions in one exchange. Every
    rank must call it; ranks outside all meshes take no part."""
    began = time.perf_counter()
    names, tensors = zip(*described, strict=True)
    weights, called = exchange(
        names,
        [(each.shape, each.dtype) for each in tensors],
        [(each.source, mesh_of_torch(each.before)) for each in tensors],
        [(each.target, mesh_of_torch(each.after)) for each in tensors],
    )
    rank, ranks = dist.get_rank(), weights.plan.devices
    group = group_of(ranks) if rank in ranks else None
    has = [rank in mesh_of_torch(each.before).device_ids for each in tensors]
    LOG.info("%d tensors in one exchange: torch_model, the busiest rank receives %s bytes; ready "
             "in %.2f s", len(names), f"{weights.plan.received_max:,}",
             time.perf_counter() - began)  # fmt: skip

    def move(given: list[DTensor]) -> list[DTensor]:
        found: dict[str, Any] = {}
        if rank in ranks:
            state = {
                name: x.detach().to_local().contiguous()
                for name, x, own in zip(called, given, has, strict=True)
                if own
            }
            found = weights(state or None, group=group)
        return [
            DTensor.from_local(
                found[name] if name in found else x.to_local().new_empty(0),
                each.after,
                each.target,
                run_check=False,
                shape=x.shape,
                stride=tuple(math.prod(each.shape[dim + 1 :]) for dim in range(x.ndim)),
            )
            for name, each, x in zip(called, tensors, given, strict=True)
        ]

    return move
