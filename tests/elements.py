"""Single elements: from a device and a local index to the tensor, and back. What is outside either
is an error, never a number."""

from __future__ import annotations

import math
from collections.abc import Sequence

from shardwright.ir.errors import InputError
from shardwright.ir.layout import Layout


def element_at(layout: Layout, position: int, local: Sequence[int]) -> tuple[int, ...]:
    """`d(c)[k] -> t[i]`: the tensor element at a local index of the device at a mesh position.

    Raises InputError for a position outside the mesh or an index outside the device's shard.
    """
    if not 0 <= position < layout.mesh.size:
        raise InputError(
            "a position must be in the mesh",
            argument="position",
            got=position,
            expected=f"0 to {layout.mesh.size - 1}",
        )
    box = [(int(low), int(high)) for low, high in layout.box(position)[layout.hidden :]]
    _check(local, [high - low for low, high in box], "a local index must be in its shard", "local")
    return tuple(low + index for (low, _), index in zip(box, local, strict=True))


def holders_of(layout: Layout, element: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """`t[i] -> d(c)[k]`: the positions of all devices that hold a tensor element, and its local
    index there.

    Raises InputError for an element outside the tensor.
    """
    dims = layout.dims[layout.hidden :]
    extents = [dim.extent for dim in dims]
    _check(element, extents, "an element must be in the tensor", "element")
    found = [dim.locate(index) for dim, index in zip(dims, element, strict=True)]
    sums = [range(dim.extent) for dim in layout.dims[: layout.hidden]]
    positions = [
        int(layout.position((*_digits(term, sums), *(shard for shard, _ in found)), replica))
        for term in range(math.prod(map(len, sums)))
        for replica in range(layout.replicas)
    ]
    return tuple(sorted(positions)), tuple(int(local) for _, local in found)


def _digits(number: int, ranges: Sequence[range]) -> list[int]:
    """The mixed-radix digits of a number, major to minor."""
    digits: list[int] = []
    for values in reversed(ranges):
        number, digit = divmod(number, len(values))
        digits.append(digit)
    return digits[::-1]


def _check(index: Sequence[int], extents: Sequence[int], rule: str, argument: str) -> None:
    if len(index) == len(extents) and all(0 <= i < n for i, n in zip(index, extents, strict=True)):
        return
    raise InputError(
        rule,
        argument=argument,
        got=f"[{', '.join(map(str, index))}]",
        expected="each index below its extent, [" + ", ".join(map(str, extents)) + "]",
    )
