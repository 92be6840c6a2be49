"""A smaller, equally cut relayout, in place of one too large to run here.

An uncut dimension becomes short. One that is cut, or along which parts are stacked, is divided by
the common divisor of all its boundaries, in source and target, so the pattern of cuts stays.
Dimensions of several factors stay. A twin is valid only if it moves the same boxes between the same
buffers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from shardwright.ir.dim_cuts import BoundCut, DimCut
from shardwright.ir.errors import InputError
from shardwright.ir.factors import Factors
from shardwright.ir.parts import BufferLayout, Stack, TensorPart
from shardwright.ir.relayout import Relayout, plan_relayout
from shardwright.ir.stored import Stored

SHORT = 2
"""Elements of an uncut dimension, and of the shortest piece of a cut one."""

Shapes = dict[str, tuple[int, ...]]
Axis = tuple[str, int]
"""A logical dimension of a tensor."""
Units = dict[Axis, int]
"""The divisor of each dimension."""


class Use(NamedTuple):
    """How a part stores a logical dimension: as stored dimension `at`, or split into factors
    (None)."""

    tensor: str
    dim: int
    at: int | None
    cut: BoundCut | None
    is_cut: bool  # or a dimension along which parts are stacked


def twin(relayout: Relayout) -> Relayout | None:
    """Return the twin of a relayout; None if no smaller one moves the same boxes."""
    sides = relayout.source.in_bytes, relayout.target.in_bytes
    uses = [use for side in sides for use in _uses(side)]
    fixed = {(use.tensor, use.dim) for use in uses if use.at is None}
    cut = {(use.tensor, use.dim) for use in uses if use.is_cut} - fixed
    units = _units(sides, [use for use in uses if use[:2] in cut])
    shapes = {
        name: tuple(
            extent
            if (name, dim) in fixed
            else _divided(extent, units[name, dim])
            if (name, dim) in cut
            else min(extent, SHORT)
            for dim, extent in enumerate(shape)
        )
        for name, shape in sides[0].tensors.items()
    }
    try:
        found = Relayout(*(_shorter(side, shapes, units) for side in sides))
    except InputError:
        return None
    same = _boxes(found) == _boxes(Relayout(*sides))
    return found if same and shapes != sides[0].tensors else None


def _boxes(relayout: Relayout) -> list[tuple[object, ...]]:
    """Return the moves between buffers, without offsets and lengths."""
    return [
        (
            *(relay.tensor, relay.sender, relay.receiver, relay.source.buffer),
            *(target.buffer for target in relay.targets),
        )
        for relay in plan_relayout(relayout).relays
    ]


def _uses(side: Stored) -> Iterator[Use]:
    """Yield, for each part and tensor dimension, how the part stores it."""
    for name, layout in side.buffers.items():
        parts = layout.parts if isinstance(layout, Stack) else (layout,)
        stacked = layout.dim if isinstance(layout, Stack) else None
        for part, bound in zip(parts, side.bound[name].parts, strict=True):
            for dim, at in enumerate(_stored_as(part, len(side.tensors[part.tensor]))):
                if at is None:
                    yield Use(part.tensor, dim, None, None, False)
                else:
                    whole = len(part.dims) <= at or part.dims[at].is_whole
                    is_cut = at == stacked or not whole
                    yield Use(part.tensor, dim, at, bound.cuts[at], is_cut)


def _stored_as(part: TensorPart, rank: int) -> list[int | None]:
    """Return the dimension that stores each logical one, None if it has several factors."""
    if part.factors is None:
        return list(range(rank))
    alone = {group[0]: at for at, group in enumerate(part.factors.after) if len(group) == 1}
    groups = part.factors.before
    return [alone.get(group[0][0]) if len(group) == 1 else None for group in groups]


def _units(sides: tuple[Stored, Stored], uses: list[Use]) -> Units:
    """Return the common divisor of the boundaries of dimensions; those of one stack share it."""
    found: Units = {}
    for use in uses:
        assert use.cut is not None
        mesh_size = max(side.mesh.size for side in sides)
        ends = (int(end) for p in range(mesh_size) for end in use.cut.interval(p))
        extent = sides[0].tensors[use.tensor][use.dim]
        found[use[:2]] = math.gcd(found.get(use[:2], 0), extent, use.cut.pads or 0, *ends)
    stacks = [each for side in sides for each in _stacked(side)]
    while True:
        before = dict(found)
        for pads, axes in stacks:
            shared = math.gcd(pads, *(found[axis] for axis in axes if axis in found))
            found |= {axis: shared for axis in axes if axis in found}
        if found == before:
            return found


def _stacked(side: Stored) -> Iterator[tuple[int, list[Axis]]]:
    """Yield the dimensions that parts of a buffer store as one, with its padding."""
    for name, layout in side.buffers.items():
        parts = layout.parts if isinstance(layout, Stack) else (layout,)
        places = [_stored_as(part, len(side.tensors[part.tensor])) for part in parts]
        for at in range(len(side.bound[name].parts[0].axes)):
            pads = side.bound[name].pads if at == side.bound[name].dim else None
            pairs = zip(parts, places, strict=True)
            axes = [(part.tensor, held.index(at)) for part, held in pairs if at in held]
            yield pads or 0, axes


def _divided(number: int, unit: int) -> int:
    return number // unit * SHORT if unit > SHORT else number


def _shorter(side: Stored, shapes: Shapes, units: Units) -> Stored:
    """Return a side of the twin."""
    layouts: dict[str, BufferLayout] = {}
    for name, layout in side.buffers.items():
        if isinstance(layout, TensorPart):
            layouts[name] = _part(layout, side.tensors, units)
            continue
        parts = tuple(_part(part, side.tensors, units) for part in layout.parts)
        first = layout.parts[0]
        places = _stored_as(first, len(side.tensors[first.tensor]))
        through = layout.cut
        if through is not None and layout.dim in places:
            through = _cut(through, units.get((first.tensor, places.index(layout.dim)), 1))
        layouts[name] = replace(layout, parts=parts, cut=through)
    return Stored(side.mesh, shapes, layouts, side.dtype)


def _part(part: TensorPart, shapes: Shapes, units: Units) -> TensorPart:
    places = _stored_as(part, len(shapes[part.tensor]))
    dims = tuple(
        _cut(dim, units.get((part.tensor, places.index(at)), 1)) if at in places else dim
        for at, dim in enumerate(part.dims)
    )
    if part.factors is None:
        return replace(part, dims=dims)
    groups = tuple(
        group if len(group) > 1 else ((group[0][0], None),) for group in part.factors.before
    )
    return replace(part, dims=dims, factors=Factors(groups, part.factors.after))


def _cut(cut: DimCut, unit: int) -> DimCut:
    """Return the cut of a dimension with shorter pieces."""
    window = cut.window and (_divided(cut.window[0], unit), _divided(cut.window[1], unit))
    kept = cut.numbers[:1] if cut.rule == "cover" else ()
    divided = (_divided(number, unit) for number in cut.numbers[len(kept) :])
    return replace(cut, numbers=(*kept, *divided), window=window)
