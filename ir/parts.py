"""Parts: the pieces of logical tensors that a device stores.

A *buffer* is a dense array, the concatenation of parts along one dimension. A *part* is a piece of
one logical tensor. Each of its stored dimensions has a cut into shards (`ir/cuts.py`), and a rule
that gives the shard of each device. `ir/text/layout_text.py` reads these texts:

    layout     q[{"tp"}, {}]                        one part; omitted dimensions are whole
               stack(0, q[{"tp"}], k[{"tp":(1)2}])  parts along dimension 0
               cut(0, {"fsdp"}, stack(0, q, k))     one contiguous cut through a stack
    dimension  {"tp"}                               equal chunks; the last may be shorter
               {"tp"} sized(S) or sized(S, a)       shards of S, the first begins a elements before
               {"tp"} balanced                      shards whose sizes differ by at most one
               {"x", "y"} nested                    chunks of chunks, as DTensor cuts
               {"tp"} listed(0, 3, 7, 10)           shards between these boundaries
               {"tp"} cover(B, K) or cover(B, K, S) the blocks of B elements that intersect each
                                                    shard of K elements (of size S)
               {"cp"} into(8)                       8 shards; position c has shard c
               {"cp"} into(8) reversed              8 shards; position c has shard 7 - c
               {"ep"} table(3, 0, -, 2)             the shard of each position; - for none
               0:64 {"tp"}                          only elements 0 to 63
    factors    q '(g=2 h e) d -> g (h e) d' [{"tp"}]   reshaped and reordered, then cut

`sized(S)` pads: every device stores S elements, and elements beyond the dimension have no value.
In a cut through a stack, the padding is at the end of the buffer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from shardwright.ir.arrays import Integers
from shardwright.ir.axes import AxisRef
from shardwright.ir.dim_cuts import BoundCut, DimCut
from shardwright.ir.errors import InputError, one_of, placed
from shardwright.ir.factors import FactorAxis, Factors
from shardwright.ir.mesh import Digit, Mesh

ONLY = "_"
"""In a layout, this stands for the tensor with the same name as the buffer, or for the only
tensor."""


@dataclass(frozen=True)
class TensorPart:
    """A piece of a logical tensor. `str` returns its text, which omits trailing uncut
    dimensions."""

    tensor: str
    dims: tuple[DimCut, ...] = ()
    factors: Factors | None = None

    def __post_init__(self) -> None:
        dims = list(self.dims)
        while dims and dims[-1].is_whole:
            dims.pop()
        object.__setattr__(self, "dims", tuple(dims))

    def bind(self, shape: tuple[int, ...], mesh: Mesh) -> BoundPart:
        """Return the part on a mesh for a tensor of shape `shape`. Raise InputError if the part
        does not fit the shape or the mesh."""
        whole: tuple[tuple[FactorAxis, ...], ...] = tuple(
            (FactorAxis(dim, 1, extent),) for dim, extent in enumerate(shape)
        )
        with placed("factors"):
            axes = whole if self.factors is None else self.factors.axes(shape)
        if len(self.dims) > len(axes):
            raise InputError(
                "a part must not have more dimensions than its tensor",
                got=f"{len(self.dims)} dimensions of {self.tensor}",
                expected=f"at most {len(axes)}",
                where=("dims", len(axes)),
            )
        cuts = []
        for number, (group, dim) in enumerate(zip(axes, self._all(len(axes)), strict=True)):
            where = ("dims", number)
            if len(group) > 1 and not dim.is_whole:
                raise InputError(
                    "a stored dimension that merges several factors must not be cut",
                    got=dim,
                    expected="a cut of a factor that is a separate stored dimension",
                    where=where,
                )
            extent = math.prod(axis.size for axis in group)
            with placed(*where):
                cuts.append(dim.bind(extent, mesh))
        _check_axes(self.dims, mesh)
        return BoundPart(self.tensor, axes, tuple(cuts))

    def _all(self, rank: int) -> tuple[DimCut, ...]:
        return self.dims + (DimCut(),) * (rank - len(self.dims))

    def with_cut(self, dim: int, cut: DimCut) -> TensorPart:
        """Return the part with the cut of dimension `dim` replaced by `cut`."""
        dims = list(self._all(max(dim + 1, len(self.dims))))
        dims[dim] = cut
        return replace(self, dims=tuple(dims))

    def __str__(self) -> str:
        factors = "" if self.factors is None else f" '{self.factors}'"
        dims = f"[{', '.join(map(str, self.dims))}]" if self.dims else ""
        return f"{self.tensor}{factors}{' ' * bool(factors and dims)}{dims}"


def _check_axes(dims: tuple[DimCut, ...], mesh: Mesh) -> None:
    """Raise InputError if one axis cuts two dimensions."""
    seen: list[tuple[Digit, AxisRef]] = []
    for number, dim in enumerate(dims):
        for place, (ref, digit) in enumerate(zip(dim.axes, dim.digits(mesh), strict=True)):
            for other, earlier in seen:
                if ref.name == earlier.name and _overlap(digit, other):
                    raise InputError(
                        "an axis may cut only one dimension of a part",
                        got=f"{earlier} and {ref}",
                        expected="axes that do not overlap",
                        where=("dims", number, "axes", place),
                    )
            seen.append((digit, ref))


def _overlap(a: Digit, b: Digit) -> bool:
    return a.stride < b.stride * b.size and b.stride < a.stride * a.size


@dataclass(frozen=True)
class BoundPart:
    """A part on a mesh. `axes`: the factors of each stored dimension, major to minor. `cuts`: the
    cut of each stored dimension."""

    tensor: str
    axes: tuple[tuple[FactorAxis, ...], ...]
    cuts: tuple[BoundCut, ...]

    def box(self, position: int) -> tuple[tuple[int, int], ...]:
        """Return the half-open range of each stored dimension at a mesh position."""
        return tuple(cut.interval(position) for cut in self.cuts)

    def shape(self, position: int) -> tuple[int, ...]:
        """Return the shape of the part at a mesh position, padding included."""
        return tuple(
            max(high - low, cut.pads or 0)
            for cut, (low, high) in zip(self.cuts, self.box(position), strict=True)
        )

    def indices(self, box: tuple[tuple[int, int], ...]) -> tuple[Integers, ...]:
        """Return arrays that index the logical tensor to select a box of the stored dimensions:
        one for each logical dimension. Their shapes broadcast to the extents of the box."""
        rank = 1 + max(axis.dim for group in self.axes for axis in group)
        found: list[Integers] = [np.zeros((1,) * len(box), dtype=np.int64) for _ in range(rank)]
        for dim, (low, high) in enumerate(box):
            sides = [1] * len(box)
            sides[dim] = high - low
            for logical, added in self.along(dim, low, high).items():
                found[logical] = found[logical] + added.reshape(sides)
        return tuple(found)

    def along(self, dim: int, low: int, high: int) -> dict[int, Integers]:
        """Return, by logical dimension, the contributions of the elements `low` to below `high`
        of a stored dimension to the logical index."""
        rest = np.arange(low, high, dtype=np.int64)
        found: dict[int, Integers] = {}
        for axis in reversed(self.axes[dim]):
            rest, digit = np.divmod(rest, axis.size)
            found[axis.dim] = found.get(axis.dim, 0) + digit * axis.weight
        return found


@dataclass(frozen=True)
class Stack:
    """Parts concatenated along dimension `dim`. `cut`: the cut of the concatenation, if it is cut
    after stacking."""

    dim: int
    parts: tuple[TensorPart, ...]
    cut: DimCut | None = None

    def __str__(self) -> str:
        stack = f"stack({self.dim}, {', '.join(map(str, self.parts))})"
        return stack if self.cut is None else f"cut({self.dim}, {self.cut}, {stack})"


BufferLayout: TypeAlias = TensorPart | Stack
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class BoundBuffer:
    """A buffer on a mesh: parts concatenated along dimension `dim`. `pads`: the extent of the
    buffer along `dim`, padding included; None if the stack is not padded."""

    dim: int
    parts: tuple[BoundPart, ...]
    pads: int | None = None

    def starts(self, position: int) -> list[int]:
        """Return the start of each part along `dim` at a mesh position, then the end of the last
        part."""
        shapes = (part.shape(position) for part in self.parts)
        widths = [shape[self.dim] if shape and all(shape) else 0 for shape in shapes]
        return [sum(widths[:number]) for number in range(len(widths) + 1)]

    def shape(self, position: int) -> tuple[int, ...]:
        """Return the shape of the buffer at a mesh position."""
        shapes = [part.shape(position) for part in self.parts]
        extents = list(next(filter(all, shapes), shapes[0]))
        if extents and all(extents):
            extents[self.dim] = self.starts(position)[-1]
        if self.pads is not None:
            extents[self.dim] = self.pads
        return tuple(extents)


def bind(layout: BufferLayout, shapes: Shapes, mesh: Mesh) -> BoundBuffer:
    """Return the buffer that a layout describes, on a mesh and for tensors of these shapes.

    Raises InputError, with the place in the layout, if the layout does not fit the shapes or the
    mesh.
    """
    parts = (layout,) if isinstance(layout, TensorPart) else layout.parts
    bound: list[BoundPart] = []
    for number, part in enumerate(parts):
        with placed("parts", number):
            bound.append(part.bind(_shape(part, shapes), mesh))
    if isinstance(layout, TensorPart):
        return BoundBuffer(0, tuple(bound))
    ranks = [len(part.axes) for part in bound]
    for number, rank in enumerate(ranks):
        if rank != ranks[0] or layout.dim >= rank:
            raise InputError(
                "the parts of a stack must have equal ranks, and its dimension must exist in them",
                got=f"{parts[number].tensor} of rank {rank}, stacked along dimension {layout.dim}",
                expected=f"rank {max(ranks[0], layout.dim + 1)}",
                where=("parts", number),
            )
    if layout.cut is None:
        return _checked(BoundBuffer(layout.dim, tuple(bound)), mesh)
    return _checked(_through(layout, layout.cut, bound, mesh), mesh)


def _shape(part: TensorPart, shapes: Shapes) -> tuple[int, ...]:
    if part.tensor in shapes:
        return shapes[part.tensor]
    raise InputError("a part must name a logical tensor", got=part.tensor, expected=one_of(shapes))


def _through(layout: Stack, cut: DimCut, parts: list[BoundPart], mesh: Mesh) -> BoundBuffer:
    """Return the buffer of a stack that is cut as a whole. Each part gets a window of the cut of
    the stack."""
    if cut.window is not None:
        raise InputError(
            "a cut of a stack must not have a range",
            got=cut,
            expected="ranges in the parts, such as 0:64 {}",
            where=("cut", "window"),
        )
    with placed("cut"):
        axes = tuple(zip(cut.axes, cut.digits(mesh), strict=True))
    for number, (part, bound) in enumerate(zip(layout.parts, parts, strict=True)):
        for digit in (digit for each in bound.cuts for digit in each.digits):
            for ref, other in axes:
                if _overlap(digit, other):
                    raise InputError(
                        "an axis that cuts the stack must not also cut one of its parts",
                        got=part,
                        expected=f"{part.tensor} without {ref}",
                        where=("parts", number),
                    )
        along = (*part.dims, *[DimCut()] * (layout.dim + 1))[layout.dim]
        if not replace(along, window=None).is_whole:
            raise InputError(
                "a part must not cut the dimension along which the whole stack is cut",
                got=part,
                expected=f"{part.tensor} with {{}} for dimension {layout.dim}",
                where=("parts", number),
            )
    extents = [part.cuts[layout.dim].cut.extent for part in parts]
    with placed("cut"):
        whole = cut.bind(sum(extents), mesh)
    found = []
    for number, (bound, extent) in enumerate(zip(parts, extents, strict=True)):
        window = whole.cut.window(sum(extents[:number]), extent)
        own = replace(whole, start=bound.cuts[layout.dim].start, cut=window, pads=None)
        cuts = (*bound.cuts[: layout.dim], own, *bound.cuts[layout.dim + 1 :])
        found.append(replace(bound, cuts=cuts))
    return BoundBuffer(layout.dim, tuple(found), whole.pads)


def _checked(buffer: BoundBuffer, mesh: Mesh) -> BoundBuffer:
    """Return the buffer. Raise InputError unless, at each mesh position, its parts have equal
    extents in all dimensions but `buffer.dim`."""
    for position in range(mesh.size):
        first: tuple[str, tuple[int, ...]] | None = None
        for number, part in enumerate(buffer.parts):
            shape = part.shape(position)
            if not all(shape):
                continue
            beside = (*shape[: buffer.dim], *shape[buffer.dim + 1 :])
            if first is not None and beside != first[1]:
                raise InputError(
                    f"parts of a stack must have equal extents except along dimension {buffer.dim}",
                    got=f"{shape} of {part.tensor} on device {mesh.device_ids[position]}",
                    expected=f"extents like those of {first[0]}",
                    where=("parts", number),
                )
            first = first or (f"{shape} of {part.tensor}", beside)
    return buffer


def axes_by_dim(layout: BufferLayout, rank: int) -> list[tuple[str, ...]]:
    """Return, for each dimension of a buffer, the names of the axes that cut it in some part. An
    axis that cuts several dimensions is listed at the first dimension found."""
    parts = layout.parts if isinstance(layout, Stack) else (layout,)
    cuts = [(dim, cut) for part in parts for dim, cut in enumerate(part.dims)]
    if isinstance(layout, Stack) and layout.cut is not None:
        cuts.append((layout.dim, layout.cut))
    found: dict[str, int] = {}
    for dim, cut in cuts:
        for ref in cut.axes:
            found.setdefault(ref.name, dim)
    return [tuple(name for name, at in found.items() if at == dim) for dim in range(rank)]
