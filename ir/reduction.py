"""Reductions: transfers that combine partial results into a sum, a maximum or a minimum.

In this module, "sum" means any of the three. A group of n devices, which differ only in the digits
of the unreduced axes, has the n partial sums of a value.

    scatter   every device adds all partial sums of its target shard
    in place  every device adds the partial sums of one of n parts of its shard, cut along the
              longest dimension; then it copies the part to the other devices of its group

The digits of a sender equal the digits of the receiver, except the digits of the partial sum and
of the shard. All devices therefore send equal amounts if the tensor divides evenly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from shardwright.ir.algebra.index import Value
from shardwright.ir.arrays import Integers
from shardwright.ir.exchange import ids_of
from shardwright.ir.layout import Layout, read_digits, write_digits
from shardwright.ir.mesh import Digit
from shardwright.ir.sharding import Operator
from shardwright.ir.tiles import DimTiles
from shardwright.ir.transfers import Transfers


@dataclass(frozen=True)
class Reduction:
    """The layouts before and after a reduction, whose meshes have the same devices in the same
    order, and the digits along which partial sums are added.

    The hidden dimensions of `before` represent all unreduced digits; those of `after` represent
    only `kept`.
    """

    before: Layout
    after: Layout
    terms: tuple[Digit, ...]  # the digits that number the partial sums to add
    kept: tuple[Digit, ...]  # the digits that stay unreduced
    operator: Operator = "sum"

    @property
    def count(self) -> int:
        """The number of partial sums that add up to one value."""
        return math.prod(digit.size for digit in self.terms)

    def sender(self, shard: tuple[Value, ...], receiver: Value, term: Value) -> Value:
        """Return the position of the device that sends a partial sum.

        `shard`: the index of the source shard along each tensor dimension. `receiver`: the position
        of the receiver. `term`: the index of the partial sum.
        """
        position: Value = write_digits(self.terms, term)
        for dim, index in zip(self.before.dims[self.before.hidden :], shard, strict=True):
            position = position + dim.place(index)
        own = (*self.before.free, *self.kept)
        return position + write_digits(own, read_digits(own, receiver))

    def sums(self) -> Transfers:
        """Return the transfers that the receivers add up, including each receiver's own partial
        sum. Receivers start from empty target shards."""
        if self._scatters:
            return self._scattered()
        return self._in_parts(lambda own, _: own)

    def copies(self) -> Transfers | None:
        """Return the transfers that copy parts of sums in a reduction in place; None in a
        scatter."""
        if self._scatters:
            return None
        copied = self._in_parts(lambda _, other: other)
        away = ~copied.is_local
        return Transfers(*(getattr(copied, name)[away] for name in _FIELDS))

    @property
    def _scatters(self) -> bool:
        dims = slice(self.before.hidden, None), slice(self.after.hidden, None)
        return self.before.dims[dims[0]] != self.after.dims[dims[1]]

    def _scattered(self) -> Transfers:
        before = self.before.dims[self.before.hidden :]
        after = self.after.dims[self.after.hidden :]
        positions = np.arange(self.after.mesh.size, dtype=np.int64)
        rows = positions
        shard = np.empty((rows.size, 0), dtype=np.int64)
        low, high = shard, shard
        for source, target in zip(before, after, strict=True):
            pairs = DimTiles(source, target).pairs
            order = np.argsort(pairs.target, kind="stable")
            ends = np.searchsorted(pairs.target[order], np.arange(target.parts + 1))
            wanted = target.index(rows) + 0 * rows
            count = ends[wanted + 1] - ends[wanted]
            first = np.cumsum(count) - count
            pick = np.repeat(ends[wanted] - first, count) + np.arange(int(count.sum()))
            pair = order[pick]
            rows = np.repeat(rows, count)
            shard = np.column_stack([np.repeat(shard, count, axis=0), pairs.source[pair]])
            low = np.column_stack([np.repeat(low, count, axis=0), pairs.low[pair]])
            high = np.column_stack([np.repeat(high, count, axis=0), pairs.high[pair]])
        parts = []
        for term in range(self.count):
            sender = self.sender(tuple(shard.T), rows, term) + 0 * rows
            parts.append(self._boxes(sender, rows, low, high))
        return _joined(parts)

    def _boxes(
        self, sender: Integers, receiver: Integers, low: Integers, high: Integers
    ) -> Transfers:
        tensor = np.stack([low, high], axis=2)
        starts = self._starts(self.before)[sender], self._starts(self.after)[receiver]
        ids = ids_of(self.before.mesh), ids_of(self.after.mesh)
        return Transfers(
            ids[0][sender],
            ids[1][receiver],
            tensor,
            tensor - starts[0][:, :, None],
            tensor - starts[1][:, :, None],
        )

    def _starts(self, layout: Layout) -> Integers:
        starts: Integers = layout.boxes()[:, layout.hidden :, 0]
        return starts

    def _in_parts(self, part: Callable[[Integers, int], Value]) -> Transfers:
        """Return the transfers from every device of each group to every device of the same group.
        `part`: returns the number of the part that is sent, given the numbers of the receivers and
        of the sender in the group."""
        receiver = np.arange(self.after.mesh.size, dtype=np.int64)
        own = read_digits(self.terms, receiver) + 0 * receiver
        box = self.after.boxes()[:, self.after.hidden :]
        parts = []
        for other in range(self.count):
            sender = receiver + write_digits(self.terms, other) - write_digits(self.terms, own)
            number = np.broadcast_to(part(own, other), receiver.shape)
            low, high = self._part(box, number)
            full = np.all(high > low, axis=1) if box.shape[1] else number == 0
            parts.append(self._boxes(sender[full], receiver[full], low[full], high[full]))
        return _joined(parts)

    def _part(self, box: Integers, number: Integers) -> tuple[Integers, Integers]:
        """Return the low and the high ends, [n, dimensions] each, of one part of each box.
        `box`: int64 [n, dimensions, 2]. `number`: the index of the part of each box. Boxes are
        cut into `count` parts along their longest dimension; a scalar is not cut."""
        low, high = box[:, :, 0].copy(), box[:, :, 1].copy()
        if box.shape[1]:
            axis = int(np.argmax((high - low).max(axis=0)))
            start, width = box[:, axis, 0], box[:, axis, 1] - box[:, axis, 0]
            low[:, axis] = start + width * number // self.count
            high[:, axis] = start + width * (number + 1) // self.count
        return low, high


_FIELDS = ("sender", "receiver", "tensor", "source", "target")


def _joined(parts: list[Transfers]) -> Transfers:
    return Transfers(*(np.concatenate([getattr(p, name) for p in parts]) for name in _FIELDS))
