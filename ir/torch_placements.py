"""Shardings as torch's DTensor says them: a DeviceMesh, and a placement for each dimension of it.

torch is not imported. The device ids of a mesh are the ranks of processes. torch cuts extents that
do not divide chunk by chunk: that is the split `nested`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from shardwright.ir.axes import AxisRef, between
from shardwright.ir.errors import InputError
from shardwright.ir.foreign import PLACEMENT, is_a
from shardwright.ir.mesh import Mesh
from shardwright.ir.sharding import OPERATORS, DimSharding, Operator, Sharding

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor.placement_types import Placement


@dataclass(frozen=True)
class Placed:
    """What a placement says of its axis: the dimension that it splits, or the operator of the terms
    along it, or neither. `factor`: that of a strided one, else 1; `text`: how it is printed."""

    text: str
    dim: int | None = None
    factor: int = 1
    operator: Operator | None = None

    @staticmethod
    def of(placement: Any) -> Placed:
        """Return what a placement of torch says; an InputError for one that has no words here."""
        kind = type(placement).__name__ if is_a(placement, PLACEMENT) else ""
        text = repr(placement)
        if kind == "Shard":
            return Placed(text, placement.dim)
        if kind == "_StridedShard":
            return Placed(text, placement.dim, int(placement.split_factor))
        if kind == "Partial" and placement.reduce_op in OPERATORS:
            return Placed(text, operator=placement.reduce_op)
        if kind == "Replicate":
            return Placed(text)
        raise unknown_placement(text)


def unknown_placement(text: str) -> InputError:
    """Return the error for a placement that has no words here."""
    return InputError(
        "a placement must be one this representation has",
        argument="placements",
        got=text,
        expected="Shard(dim), Replicate() or Partial of sum, max or min",
    )


class Placing(NamedTuple):
    """A sharding that placements say, and the dimensions with strided ones: of these torch makes
    shards that are those of no split, unless the extent divides."""

    sharding: Sharding
    strided: frozenset[int]

    def split(self, shape: tuple[int, ...]) -> str:
        """Return the split of a tensor of a shape: `nested` where it differs from `flat`."""
        nested = False
        for number, (dim, extent) in enumerate(zip(self.sharding.dims, shape, strict=True)):
            if extent % self.sharding.parts(number) == 0:
                continue
            if number in self.strided:
                raise InputError(
                    "the extent of a dimension with a strided placement must divide",
                    argument="placements",
                    got=f"extent {extent} of dimension {number}, split as {dim}",
                    expected=f"a multiple of {self.sharding.parts(number)}; for shards that FSDP "
                    "has cut, sw.from_torch(…) and the split nested",
                )
            nested |= sum(digit.size > 1 for digit in self.sharding.digits(number)) > 1
        return "nested" if nested else "flat"


def from_torch(device_mesh: DeviceMesh, placements: Sequence[Placement], rank: int) -> Sharding:
    """Return the sharding of a torch DTensor: `Shard`, `Replicate`, and `Partial` as an unreduced
    axis of its operator (sum, max or min, one for all axes); `_StridedShard`, by which FSDP shards
    what is sharded already, as an axis that is more minor than axes after it.

    torch cuts extents that do not divide chunk by chunk, so a reshard of such a tensor names the
    split `nested`. (So does FSDP. What else torch makes of strided placements are shards of no
    split, unless the extent divides.) Mesh dimensions without names become `dim_0`, `dim_1`, …
    """
    return placing(mesh_of_torch(device_mesh), map(Placed.of, placements), rank).sharding


def mesh_of_torch(device_mesh: Any) -> Mesh:
    """Return a DeviceMesh by its ranks."""
    ranks = device_mesh.mesh
    names = device_mesh.mesh_dim_names or [f"dim_{i}" for i in range(ranks.ndim)]
    return Mesh(zip(names, ranks.shape, strict=True), ranks.flatten().tolist())


def placing(mesh: Mesh, given: Iterable[Placed], rank: int) -> Placing:
    """Return the sharding that placements say on a mesh, for a tensor of a rank."""
    placed = tuple(given)
    if len(placed) != len(mesh.axes):
        raise InputError(
            "there must be one placement for each dimension of the device mesh",
            argument="placements",
            got=f"{len(placed)} placements",
            expected=str(len(mesh.axes)),
        )
    axes: list[list[AxisRef]] = [[] for _ in range(rank)]
    # From the last placement, which is of the most minor axis, unless later ones are strided.
    for name, each in reversed(list(zip(mesh.names, placed, strict=True))):
        if each.dim is not None:
            dim = _dim(each.dim, rank)
            axes[dim] = _with(mesh, axes[dim], name, each)
    terms = [(name, each.operator) for name, each in zip(mesh.names, placed, strict=True)]
    dims = tuple(DimSharding(tuple(refs)) for refs in axes)
    unreduced = tuple(AxisRef(name) for name, operator in terms if operator)
    sharding = Sharding(mesh, dims, (), unreduced, _operator(terms))
    strided = (each.dim % rank for each in placed if each.dim is not None and each.factor > 1)
    return Placing(sharding, frozenset(strided))


def _operator(terms: list[tuple[str, Operator | None]]) -> Operator:
    """Return the operator of all unreduced axes."""
    by_operator = {operator: name for name, operator in reversed(terms) if operator}
    if len(by_operator) > 1:
        raise InputError(
            "all unreduced axes of a sharding have one operator",
            argument="placements",
            got=" and ".join(f"{each} along {by_operator[each]}" for each in sorted(by_operator)),
            expected="Partial of one operator",
        )
    return cast(Operator, next(iter(by_operator), "sum"))


def _with(mesh: Mesh, refs: list[AxisRef], name: str, each: Placed) -> list[AxisRef]:
    """Return the axes of a dimension with one more, after the major-most ones, or parts of them,
    that make as many shards as the placement's split factor says."""
    left, before, after = each.factor, list[AxisRef](), list(refs)
    while left > 1 and after:
        first = after.pop(0)
        size, pre = mesh.full_size(first), first.pre or 1
        cut = math.gcd(left, size)
        if cut < size and cut < left:
            break
        left //= cut
        whole = mesh.axis_size(first.name)
        before.append(between(first.name, pre, pre * cut, whole))
        if cut < size:
            after.insert(0, between(first.name, pre * cut, pre * size, whole))
    if left == 1:
        return [*before, AxisRef(name), *after]
    count = math.prod(map(mesh.full_size, refs))
    raise InputError(
        "the shards of a strided placement must be cut by the placements after it",
        argument="placements",
        got=f"{each.text} along {name}, before placements that make {count} shards",
        expected="a split factor of as many shards as some of the major ones make",
    )


def _dim(dim: int, rank: int) -> int:
    if -rank <= dim < rank:
        return dim % rank
    raise InputError(
        "a placement must shard a dimension of the tensor",
        argument="placements",
        got=f"Shard(dim={dim})",
        expected=f"a dimension of a tensor of rank {rank}",
    )
