"""The shape of a tensor: at most eight extents of at least 1."""

from __future__ import annotations

from collections.abc import Iterable

from shardwright.ir.errors import InputError
from shardwright.ir.mesh import as_integer

MAX_RANK = 8


def check_shape(shape: object, argument: str = "shape") -> tuple[int, ...]:
    """Return the shape as a tuple of integers; an InputError unless it is one."""
    if isinstance(shape, str) or not isinstance(shape, Iterable):
        raise InputError(
            "a shape must be a sequence of integers",
            argument=argument,
            got=repr(shape),
            expected="extents, as (6, 6)",
        )
    given = tuple(shape)
    if len(given) > MAX_RANK:
        raise InputError(
            f"a tensor may have at most {MAX_RANK} dimensions",
            argument=argument,
            got=f"{len(given)} dimensions",
            expected=f"{MAX_RANK} or fewer",
            where=("shape",),
        )
    return tuple(_extent(extent, i, argument) for i, extent in enumerate(given))


def _extent(given: object, i: int, argument: str) -> int:
    extent = as_integer(given)
    if extent is None or extent < 1:
        raise InputError(
            "an extent must be an integer of at least 1",
            argument=argument,
            got=f"{given!r} for dimension {i}",
            expected="1, 2, 3, …",
            where=("shape", i),
        )
    return extent
