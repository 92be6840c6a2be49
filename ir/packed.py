"""Lay out packed element types: one byte stores two neighbouring elements along the last dimension.

A stored layout of such a type is converted to a layout of bytes by halving the last extent of each
tensor, and the numbers in the cuts of that dimension. Every cut must be at an even element.
"""

from __future__ import annotations

import math
from dataclasses import replace

from shardwright.ir.dim_cuts import DimCut
from shardwright.ir.errors import InputError, placed
from shardwright.ir.factors import Factors
from shardwright.ir.mesh import Mesh
from shardwright.ir.parts import BoundBuffer, BufferLayout, Shapes, Stack, TensorPart, bind

_RULE = "two elements of the last dimension share a byte, which must not be split"


def shapes_in_bytes(shapes: Shapes) -> dict[str, tuple[int, ...]]:
    """Return the shapes in bytes of tensors whose shapes are given in elements. Raise InputError
    for an odd last extent."""
    for name, shape in shapes.items():
        if not shape or shape[-1] % 2:
            raise InputError(
                _RULE,
                argument="tensors",
                got=f"{name} of shape {shape}",
                expected="an even last extent",
            )
    return {name: (*shape[:-1], shape[-1] // 2) for name, shape in shapes.items()}


def layout_in_bytes(
    layout: BufferLayout, bound: BoundBuffer, shapes: Shapes, mesh: Mesh
) -> BufferLayout:
    """Return the layout of a buffer in bytes.

    `layout`, `bound`: the layout in elements. `shapes`: the shapes of tensors in bytes. Raises
    InputError, with the place in the layout, if a cut separates the two elements of a byte.
    """
    parts = (layout,) if isinstance(layout, TensorPart) else layout.parts
    last = len(bound.parts[0].axes) - 1
    halved = []
    for number, part in enumerate(parts):
        with placed("parts", number):
            halved.append(_part(part, last, 2 * shapes[part.tensor][-1]))
    if isinstance(layout, TensorPart):
        found: BufferLayout = halved[0]
    else:
        through = None if layout.cut is None else layout.cut
        if through is not None and layout.dim == last:
            through = _cut(through)
        found = replace(layout, parts=tuple(halved), cut=through)
    _check(layout, bound, bind(found, shapes, mesh), mesh)
    return found


def _part(part: TensorPart, last: int, extent: int) -> TensorPart:
    """Return a part in bytes. `last`: the last stored dimension. `extent`: the extent of the last
    logical dimension, in elements."""
    dims = list(part.dims)
    if len(dims) > last:
        dims[last] = _cut(dims[last])
    factors = None if part.factors is None else _factors(part.factors, extent)
    return replace(part, dims=tuple(dims), factors=factors)


def _factors(factors: Factors, extent: int) -> Factors:
    """Return the factors of a tensor in bytes: the last factor of the last dimension is halved.
    Raise InputError if this factor is odd, or not stored last."""
    *dims, group = factors.before
    *first, (name, size) = group
    others = math.prod(each for _, each in first if each is not None)
    free = any(each is None for _, each in first)
    odd = size % 2 if size is not None else not free and extent // others % 2
    if factors.after[-1][-1] != name or odd:
        raise InputError(
            "the last factor of packed elements must be even, and stored last",
            got=factors,
            expected=f"{name} as the last factor on the right, with an even size",
            where=("factors",),
        )
    half = (*first, (name, None if size is None else size // 2))
    return replace(factors, before=(*dims, half))


def _cut(cut: DimCut) -> DimCut:
    """Return the cut of the last dimension in bytes: numbers of elements are halved. A `cover`
    divides a dimension of blocks, so its blocks double instead."""
    window = None if cut.window is None else (cut.window[0] // 2, -(-cut.window[1] // 2))
    if cut.rule == "cover":
        block, covered, *size = cut.numbers
        return replace(cut, rule="cover", numbers=(2 * block, covered, *size), window=window)
    return replace(cut, numbers=tuple(number // 2 for number in cut.numbers), window=window)


def _check(layout: BufferLayout, bound: BoundBuffer, halved: BoundBuffer, mesh: Mesh) -> None:
    """Raise InputError unless every range of the buffer in bytes is half of the range in
    elements."""
    last = len(bound.parts[0].axes) - 1
    for position in range(mesh.size):
        for number, (part, half) in enumerate(zip(bound.parts, halved.parts, strict=True)):
            ends = part.cuts[last].interval(position)
            low, high = half.cuts[last].interval(position)
            if ends[0] < ends[1] and (2 * low, 2 * high) != ends:
                raise _odd(layout, number, last, "elements {} to {}".format(*ends), mesh, position)
        widths = [each.shape(position)[last] for each in (bound, halved)]
        if widths[0] != 2 * widths[1] and all(bound.shape(position)):
            raise _odd(layout, 0, last, f"{widths[0]} elements, padding included,", mesh, position)


def _odd(
    layout: BufferLayout, number: int, last: int, what: str, mesh: Mesh, position: int
) -> InputError:
    through = isinstance(layout, Stack) and layout.cut is not None and layout.dim == last
    part = layout.parts[number] if isinstance(layout, Stack) else layout
    return InputError(
        _RULE,
        got=f"{what} of dimension {last} of {part.tensor} on device {mesh.device_ids[position]}",
        expected="a cut before an element with an even index",
        where=("cut",) if through else ("parts", number, "dims", last),
    )
