"""Exchanges that equal one `lax.ragged_all_to_all`, for topologies that have it
(`topology.ragged`).

This collective moves any number of rows of an array between any two devices, between any two
offsets, as given by tables. So it can perform an exchange whose boxes are slabs: ranges along one
dimension that span source and target shards along every other dimension. Nothing is packed, and the
only padding is that of rows in the platform's memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shardwright.codegen.backends.jax_xla.boxes import Boxes
from shardwright.ir.algebra.index import Integers
from shardwright.ir.exchange import Exchange

# The most (sender, receiver) pairs: the tables have an entry for each.
MOST_PAIRS = 1 << 20
WIDEST = 4  # bytes; libtpu 0.0.42 has no ragged all-to-all of 64-bit types


@dataclass(frozen=True)
class Ragged:
    """Slabs along dimension `axis` of shards with the shapes `source` and `target`.

    `unit`: the number of indices along `axis` in a row, of which all offsets and sizes are
    multiples; `wire`: as in Rounds.
    """

    axis: int
    unit: int
    source: tuple[int, ...]
    target: tuple[int, ...]
    wire: tuple[int, int]

    @property
    def target_rows(self) -> tuple[int, ...]:
        """The shape of the target shard as rows."""
        return self._rows(self.target)

    @property
    def libraries(self) -> frozenset[str]:
        return frozenset(("jnp",) if self.axis else ())

    @property
    def lines_before(self) -> tuple[str, ...]:
        """The statements that turn the source shard `x` into rows."""
        first = f"x = jnp.moveaxis(x, {self.axis}, 0)" if self.axis else "x = x"
        rows = self._rows(self.source)
        if self._front(self.source) != rows:
            first += f".reshape({_listed(rows)})"
        return () if first == "x = x" else (first,)

    @property
    def lines_after(self) -> tuple[str, ...]:
        """The statements that turn rows `y` into the target shard."""
        front = self._front(self.target)
        lines = []
        if front != self.target_rows:
            lines.append(f"y = y.reshape({_listed(front)})")
        if self.axis:
            lines.append(f"y = jnp.moveaxis(y, 0, {self.axis})")
        return tuple(lines)

    def _rows(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a shard as rows without inner dimensions, which platforms might
        pad."""
        count = shape[self.axis] // self.unit
        width = math.prod(shape) // count
        return (count, width) if width > 1 or len(shape) > 1 else (count,)

    def _front(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (shape[self.axis], *shape[: self.axis], *shape[self.axis + 1 :])


def ragged_of(exchange: Exchange, boxes: Boxes, itemsize: int, row_bytes: int) -> Ragged | None:
    """Return the ragged all-to-all that performs an exchange, or None.

    `row_bytes`: the granularity of rows on the wire in bytes, 0 if the topology has no such
    collective. If a row of one index is not a multiple of it, rows are as wide as the offsets
    allow.
    """
    axis = _slabs(exchange, boxes)
    if not row_bytes or axis is None or itemsize > WIDEST or exchange.ranks.size**2 > MOST_PAIRS:
        return None
    source, target = exchange.source.local_shape, exchange.target.local_shape
    slice_bytes = math.prod(source) // source[axis] * itemsize
    unit = _unit(boxes, axis, (source[axis], target[axis])) if slice_bytes % row_bytes else 1
    row = -(-slice_bytes * unit // row_bytes) * row_bytes
    arriving = np.zeros(exchange.ranks.size, dtype=np.int64)
    np.add.at(arriving, boxes.receiver, np.where(boxes.local, 0, boxes.shape[:, axis] // unit))
    elements = row // itemsize
    wire = int(arriving.max()) * elements, int(arriving.sum()) * elements
    return Ragged(axis, unit, source, target, wire)


def _slabs(exchange: Exchange, boxes: Boxes) -> int | None:
    full = np.full_like(boxes.shape, True, dtype=np.bool_)
    for layout in (exchange.source, exchange.target):
        full &= boxes.shape == np.array(layout.local_shape)
    for axis in range(len(exchange.target.dims)):
        if np.delete(full, axis, axis=1).all():
            return axis
    return None


def _unit(boxes: Boxes, axis: int, extents: tuple[int, int]) -> int:
    numbers: tuple[Integers, ...] = (boxes.read, boxes.write, boxes.shape)
    return math.gcd(*extents, *(int(np.gcd.reduce(each[:, axis])) for each in numbers))


def _listed(sizes: tuple[int, ...]) -> str:
    return ", ".join(map(str, sizes))
