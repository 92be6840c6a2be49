"""Decide whether two shardings, on the same mesh or on different meshes, put the same data on
every device."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from shardwright.ir.arrays import Integers
from shardwright.ir.errors import InputError
from shardwright.ir.layout import Layout
from shardwright.ir.sharding import Sharding, check_shape


def places_equally(a: Sharding, b: Sharding, shape: Iterable[int] | None = None) -> bool:
    """Return whether every device holds the same interval of the tensor, and the same partial sum
    with the same operator, under `a` as under `b`.

    Without a shape, return whether this is true for every shape. Uneven extents are split flat.
    Return False for meshes of different devices. Raises InputError for shardings of different
    ranks.

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
    (ids, held, terms), (other_ids, other_held, other_terms) = (_placed(s, extents) for s in (a, b))
    if not np.array_equal(ids, other_ids) or not np.array_equal(held, other_held):
        return False
    if a.operator != b.operator:
        return False
    return not (a.unreduced or b.unreduced) or _same_terms(held, terms, other_terms)


def _placed(
    sharding: Sharding, extents: tuple[int, ...] | None
) -> tuple[Integers, Integers, Integers]:
    """Return three arrays with a row per device, by ascending device id: the id, numbers that
    identify the device's interval, and the index of its partial sum along each unreduced axis."""
    layout = Layout.of(sharding, extents or (1,) * sharding.rank, "flat")
    ids = np.asarray(sharding.mesh.device_ids, dtype=np.int64)
    order = np.argsort(ids, kind="stable")
    held = _shards(layout) if extents is None else _intervals(layout)
    terms = _indices(layout)[:, : layout.hidden]
    return ids[order], held[order], terms[order]


def _indices(layout: Layout) -> Integers:
    positions = np.arange(layout.mesh.size, dtype=np.int64)
    columns = [index + 0 * positions for index in layout.index(positions)]
    return np.array(columns, dtype=np.int64).reshape(len(columns), layout.mesh.size).T


def _shards(layout: Layout) -> Integers:
    """Return the shard index and the number of parts along each dimension, which determine the
    interval for every extent: [positions, 2 * dimensions]."""
    parts = np.array([dim.parts for dim in layout.dims[layout.hidden :]], dtype=np.int64)
    indices = _indices(layout)[:, layout.hidden :]
    return np.concatenate([indices, np.broadcast_to(parts, indices.shape)], axis=1)


def _intervals(layout: Layout) -> Integers:
    """Return both ends of every interval, 0 and 0 for an empty interval: [positions, 2 *
    dimensions]."""
    boxes = layout.boxes()[:, layout.hidden :]
    low, high = boxes[..., :1], boxes[..., 1:]
    return np.where(low < high, boxes, 0).reshape(layout.mesh.size, 2 * boxes.shape[1])


def _same_terms(held: Integers, a: Integers, b: Integers) -> bool:
    """Return whether two numberings `a` and `b` of partial sums group devices in the same way,
    among the devices that hold the same interval.

    Groups are compared, not numbers, because the order of the terms of a sum does not matter.
    """

    def groups(*numberings: Integers) -> int:
        return len(np.unique(np.hstack([held, *numberings]), axis=0))

    return groups(a) == groups(b) == groups(a, b)
