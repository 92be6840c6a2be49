"""Read the shardings of torch's DTensor: a DeviceMesh, and a placement for each of its dimensions.

torch is not imported. The device ids of a mesh are the ranks of processes. torch cuts uneven
extents chunk by chunk, which is the split `nested`.

Along a mesh dimension that splits a tensor, ranks must ascend. For other meshes torch contradicts
itself: its collectives number shards by rank, and its slices number them by mesh coordinate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from shardwright.ir.axes import AxisRef, between, merged
from shardwright.ir.errors import InputError
from shardwright.ir.foreign import PLACEMENT, is_a
from shardwright.ir.mesh import Mesh
from shardwright.ir.sharding import OPERATORS, DimSharding, Operator, Sharding

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor.placement_types import Placement


@dataclass(frozen=True)
class Placed:
    """The content of a torch placement along one mesh axis. A replicated placement has neither
    `dim` nor `operator`."""

    text: str  # the printed form of the placement
    dim: int | None = None  # the tensor dimension that the axis splits
    factor: int = 1  # the split factor of a strided placement, else 1
    operator: Operator | None = None  # the operator of partial sums along the axis

    @staticmethod
    def of(placement: Any) -> Placed:
        """Return the content of a torch placement. Raise InputError for an unsupported one."""
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

    @staticmethod
    def all_of(
        placements: Iterable[Any], order: Iterable[tuple[int, Sequence[int]]] | None, sizes: Any
    ) -> tuple[Placed, ...]:
        """Return the content of the placements of a DTensor.

        `order`: the DTensor's `shard_order`, which torch has since version 2.13: for each tensor
        dimension, the mesh dimensions that split it, in the order of the splits. If a mesh
        dimension splits after a later mesh dimension, its placement is strided. `sizes`: the sizes
        of the mesh dimensions.
        """
        placed = [Placed.of(each) for each in placements]
        for dim, axes in order or ():
            for number, axis in enumerate(axes):
                factor = math.prod(sizes[other] for other in axes[:number] if other > axis)
                if factor > 1:
                    placed[axis] = Placed(f"_StridedShard(dim={dim}, sf={factor})", dim, factor)
        return tuple(placed)


def placed_of(x: Any) -> tuple[Placed, ...]:
    """Return the content of the placements of DTensor `x`, taking its `shard_order` into
    account."""
    order = getattr(x._spec, "shard_order", None)
    return Placed.all_of(x.placements, order, x.device_mesh.shape)


def unknown_placement(text: str) -> InputError:
    """Return the error for an unsupported placement."""
    return InputError(
        "this placement is not supported",
        argument="placements",
        got=text,
        expected="Shard(dim), Replicate() or Partial of sum, max or min",
    )


class Placing(NamedTuple):
    """A sharding that was read from placements."""

    sharding: Sharding

    def split(self, shape: tuple[int, ...]) -> str:
        """Return the split of a tensor with this shape: `nested` if flat would split it
        differently, else `flat`. Raise InputError for an uneven extent that a sub-axis
        splits."""
        nested = False
        for number, (dim, extent) in enumerate(zip(self.sharding.dims, shape, strict=True)):
            if extent % self.sharding.parts(number) == 0:
                continue
            if any(ref != AxisRef(ref.name) for ref in dim.axes):
                raise InputError(
                    "an extent must be divisible if a strided placement splits it by a sub-axis",
                    argument="placements",
                    got=f"extent {extent} of dimension {number}, split as {dim}",
                    expected=f"a multiple of {self.sharding.parts(number)}, or a split factor that "
                    "is a product of sizes of whole axes",
                )
            nested |= sum(digit.size > 1 for digit in self.sharding.digits(number)) > 1
        return "nested" if nested else "flat"


def from_torch(device_mesh: DeviceMesh, placements: Sequence[Placement], rank: int) -> Sharding:
    """Convert placements to a sharding for a torch tensor of rank `rank`.

    `Partial` becomes an unreduced axis with its operator: sum, max or min, the same on all axes.
    `_StridedShard`, which FSDP uses on tensors that are already sharded, becomes an axis minor to
    the axes after it. Mesh dimensions without names become `dim_0`, `dim_1`, …

    torch and FSDP cut uneven extents chunk by chunk, so a reshard of such a tensor needs the split
    `nested`. Pass a DTensor with a `shard_order` itself: `sw.Reshard(…, source=x, …)`. Raises
    InputError for unsupported placements.
    """
    return placing(mesh_of_torch(device_mesh), map(Placed.of, placements), rank).sharding


def mesh_of_torch(device_mesh: Any) -> Mesh:
    """Return the mesh with the dimensions of a DeviceMesh as axes and its ranks as device ids."""
    ranks = device_mesh.mesh
    names = device_mesh.mesh_dim_names or [f"dim_{i}" for i in range(ranks.ndim)]
    return Mesh(zip(names, ranks.shape, strict=True), ranks.flatten().tolist())


def placing(mesh: Mesh, given: Iterable[Placed], rank: int) -> Placing:
    """Convert placements to a sharding on a mesh for a tensor of rank `rank`. Raise InputError
    for placements that do not fit the mesh or the rank."""
    placed = tuple(given)
    if len(placed) != len(mesh.axes):
        raise InputError(
            "there must be one placement for each dimension of the device mesh",
            argument="placements",
            got=f"{len(placed)} placements",
            expected=str(len(mesh.axes)),
        )
    axes: list[list[AxisRef]] = [[] for _ in range(rank)]
    # Start from the last placement, whose axis is the minor-most unless placements are strided.
    for name, each in reversed(list(zip(mesh.names, placed, strict=True))):
        if each.dim is not None:
            dim = _dim(each.dim, rank)
            _check_ascending(mesh, name, each)
            axes[dim] = _with(mesh, axes[dim], name, each)
    terms = [(name, each.operator) for name, each in zip(mesh.names, placed, strict=True)]
    dims = tuple(DimSharding(tuple(refs)) for refs in axes)
    unreduced = tuple(AxisRef(name) for name, operator in terms if operator)
    return Placing(Sharding(mesh, dims, (), unreduced, _operator(terms)))


def ascends(mesh: Mesh, name: str) -> bool:
    """Return whether the device ids ascend along an axis of a mesh."""
    if isinstance(mesh.device_ids, range):
        return True
    grid = np.array(mesh.device_ids).reshape([size for _, size in mesh.axes])
    return bool((np.diff(grid, axis=mesh.names.index(name)) > 0).all())


def _check_ascending(mesh: Mesh, name: str, each: Placed) -> None:
    """Raise InputError for a split along an axis on which ranks do not ascend."""
    if not ascends(mesh, name):
        raise InputError(
            "ranks must ascend along a mesh dimension that splits a tensor, because torch places "
            "shards by rank in collectives and by mesh coordinate in slices",
            argument="placements",
            got=f"{each.text} along {name} of {mesh}",
            expected="a DeviceMesh of ascending ranks, or a Sharding in place of placements",
        )


def split_factors(sharding: Sharding, number: int) -> dict[str, int] | None:
    """Return, by axis that splits dimension `number`, the split factor of its placement: 1 for
    `Shard`, a larger number for `_StridedShard`. Return None if a sub-axis splits the dimension.

    This is the inverse of `placing`, which inserts the first axis last.
    """
    mesh, left, factors = sharding.mesh, sharding.dims[number].axes, dict[str, int]()
    for name in mesh.names:
        if all(ref.name != name for ref in left):
            continue
        if AxisRef(name) not in left:
            return None
        at = left.index(AxisRef(name))
        factors[name] = math.prod(map(mesh.full_size, left[:at]))
        left = merged((*left[:at], *left[at + 1 :]), mesh.sizes)
    return factors


def _operator(terms: list[tuple[str, Operator | None]]) -> Operator:
    """Return the operator of the unreduced axes, `sum` if there are none. Raise InputError if they
    have different operators."""
    by_operator = {operator: name for name, operator in reversed(terms) if operator}
    if len(by_operator) > 1:
        raise InputError(
            "all unreduced axes of a sharding must have the same operator",
            argument="placements",
            got=" and ".join(f"{each} along {by_operator[each]}" for each in sorted(by_operator)),
            expected="Partial of one operator",
        )
    return cast(Operator, next(iter(by_operator), "sum"))


def _with(mesh: Mesh, refs: list[AxisRef], name: str, each: Placed) -> list[AxisRef]:
    """Return the axes of a dimension after axis `name` is inserted.

    The new axis follows the major-most axes, or sub-axes, whose sizes multiply to the split factor
    of its placement. Raises InputError if no such axes exist.
    """
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
    makes = f"{count} shard{'s' * (count != 1)}"
    raise InputError(
        "the split factor must fit the placements for later mesh dimensions",
        argument="placements",
        got=f"{each.text} along {name}; the later placements make {makes}",
        expected="the product of the sizes of the first axes, or sub-axes, that they split by",
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
