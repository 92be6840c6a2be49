"""A smaller relayout with the same pattern of cuts, to run in place of one that is too large.

An uncut dimension gets SHORT elements. In a dimension that is cut, or along which parts are
stacked, the common divisor of all boundaries in source and target becomes SHORT elements, so the
pattern of cuts stays the same. Dimensions of several factors keep their extents. A twin is valid
only if it moves the same boxes between the same buffers.
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
"""The extent of an uncut dimension of a twin, and of the common divisor of a cut dimension."""

Shapes = dict[str, tuple[int, ...]]
Axis = tuple[str, int]
"""A tensor's name and the number of a dimension."""
Units = dict[Axis, int]
"""The common divisor of the boundaries along each dimension."""


class Use(NamedTuple):
    """How a part stores a logical dimension: as stored dimension `at`, or split into factors
    (None)."""

    tensor: str
    dim: int
    at: int | None
    cut: BoundCut | None
    is_cut: bool  # true also if parts are stacked along the dimension


def twin(relayout: Relayout) -> Relayout | None:
    """Return the twin of a relayout, or None if no smaller one moves the same boxes."""
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
    """Return the tensor, devices and buffers of each move, without offsets and lengths."""
    return [
        (
            *(relay.tensor, relay.sender, relay.receiver, relay.source.buffer),
            *(target.buffer for target in relay.targets),
        )
        for relay in plan_relayout(relayout).relays
    ]


def _uses(side: Stored) -> Iterator[Use]:
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
    """Return the stored dimension of each logical dimension, None for a dimension of several
    factors."""
    if part.factors is None:
        return list(range(rank))
    alone = {group[0]: at for at, group in enumerate(part.factors.after) if len(group) == 1}
    groups = part.factors.before
    return [alone.get(group[0][0]) if len(group) == 1 else None for group in groups]


def _units(sides: tuple[Stored, Stored], uses: list[Use]) -> Units:
    """Return the common divisor of the boundaries along each dimension. Dimensions that are stacked
    together have the same divisor."""
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
    """Yield, for each stored dimension of a buffer, its padding and the dimensions that parts store
    along it."""
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
    window = cut.window and (_divided(cut.window[0], unit), _divided(cut.window[1], unit))
    kept = cut.numbers[:1] if cut.rule == "cover" else ()
    divided = (_divided(number, unit) for number in cut.numbers[len(kept) :])
    return replace(cut, numbers=(*kept, *divided), window=window)
