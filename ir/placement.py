"""Do two shardings, on one mesh or on two, place a tensor's data equally?"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from shardwright.ir.errors import InputError
from shardwright.ir.mesh import Digit
from shardwright.ir.reshard import check_shape
from shardwright.ir.sharding import Sharding

Integers = NDArray[np.int64]


def places_equally(a: Sharding, b: Sharding, shape: Iterable[int] | None = None) -> bool:
    """Does every device hold the same interval of the tensor under `a` as under `b`?

    Without a shape: is it so for every shape? Uneven extents are cut by the flat split. Where
    values are terms, the same devices must also hold the same terms, of one operator. Meshes with
    other devices never place equally.

    >>> from shardwright.ir.mesh import Mesh
    >>> full, xy = Mesh({"devices": 8}), Mesh({"x": 4, "y": 2})
    >>> places_equally(
    ...     xy.sharding('[{"x"}, {"y"}]'),
    ...     full.sharding('[{"devices":(1)4}, {"devices":(4)2}]'),
    ... )
    True
    """
    extents = None if shape is None else check_shape(shape)
    if extents is not None:
        a, b = a.for_rank(len(extents)), b.for_rank(len(extents))
    if a.rank != b.rank:
        raise InputError(
            "two shardings of one tensor must have the same rank",
            got=f"{a.rank} and {b.rank} dimensions",
        )
    ids, position_in_a = _by_device(a)
    other_ids, position_in_b = _by_device(b)
    if not np.array_equal(ids, other_ids):
        return False
    if a.operator != b.operator:
        return False
    held = _held(a, position_in_a, extents)
    if not np.array_equal(held, _held(b, position_in_b, extents)):
        return False
    return not (a.unreduced or b.unreduced) or _same_terms(
        held, _terms(a, position_in_a), _terms(b, position_in_b)
    )


def _by_device(sharding: Sharding) -> tuple[Integers, Integers]:
    """The mesh's device ids ascending, and the position of each."""
    ids = np.asarray(sharding.mesh.device_ids, dtype=np.int64)
    order = np.argsort(ids, kind="stable").astype(np.int64)
    return ids[order], order


def _read(digits: Iterable[Digit], positions: Integers) -> Integers:
    """The number whose digits, major to minor, are digits of the positions."""
    number = np.zeros_like(positions)
    for digit in digits:
        number = number * digit.size + positions // digit.stride % digit.size
    return number


def _held(sharding: Sharding, positions: Integers, extents: tuple[int, ...] | None) -> Integers:
    """What each position holds: per dimension a row of starts and a row of stops, 0 if empty.

    Without extents: rows of parts and of shard indices, which make the interval of any extent.
    """
    rows: list[Integers] = []
    for dim in range(sharding.rank):
        parts, index = sharding.parts(dim), _read(sharding.digits(dim), positions)
        if extents is None:
            rows += [np.full_like(index, parts), index]
        else:
            local = -(-extents[dim] // parts)
            start = index * local
            stop = np.minimum(start + local, extents[dim])
            rows += [np.where(start < stop, start, 0), np.where(start < stop, stop, 0)]
    return np.array(rows, dtype=np.int64).reshape(-1, len(positions))


def _terms(sharding: Sharding, positions: Integers) -> Integers:
    """Which term of the sum each position holds; 0 everywhere if the values are whole."""
    return _read(map(sharding.mesh.digit, sharding.unreduced), positions)


def _same_terms(held: Integers, a: Integers, b: Integers) -> bool:
    """Do two numberings of terms group alike the devices that hold the same elements?

    The order of the terms of a sum has no meaning, so groups are compared, not numbers.
    """

    def groups(*numberings: Integers) -> int:
        return len(np.unique(np.vstack([held, *numberings]).T, axis=0))

    return groups(a) == groups(b) == groups(a, b)
