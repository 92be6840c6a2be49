"""Sums over all transfers of an exchange, computed without enumerating them.

The tiles of a target shard are all combinations of its pieces along each dimension. So if a
quantity, such as the volume, is a product of one factor per dimension, its sum over tiles is the
product of the sums over pieces. At most one tile of a receiver is already on it; the value of that
tile is subtracted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shardwright.ir.algebra.index import Integers
from shardwright.ir.exchange import Exchange


@dataclass(frozen=True)
class Pieces:
    """The pieces of the tiles along one dimension, as int64 arrays with one element per piece.

    `source`, `target`: the indices of the shards that contain the piece; `low`, `high`: its range
    in the tensor; `source_low`, `target_low`: the starts of these shards in the tensor; `band`: the
    number of earlier pieces of the same target shard.
    """

    source: Integers
    target: Integers
    low: Integers
    high: Integers
    source_low: Integers
    target_low: Integers
    band: Integers

    @staticmethod
    def of(exchange: Exchange, axis: int) -> Pieces:
        """Return the pieces along a dimension. A tile has one piece along every dimension except
        `exchange.rule.cut`."""
        tiles, rule = exchange.dims[axis], exchange.rule
        pairs = tiles.pairs
        count = rule.pieces if axis == rule.cut else 1
        low, high = np.empty((2, pairs.low.size, count), dtype=np.int64)
        for piece in range(count):
            start, end = (0, pairs.width) if count == 1 else exchange.piece(pairs.width, piece)
            low[:, piece], high[:, piece] = pairs.low + start, pairs.low + end
        first, _ = tiles.source.owners(*tiles.target.intervals)
        before = (pairs.source - np.broadcast_to(first, tiles.target.parts)[pairs.target]) * count
        band = before[:, None] + np.arange(count)
        full = (high > low).ravel()
        source, target = (np.repeat(side, count)[full] for side in (pairs.source, pairs.target))
        return Pieces(
            source,
            target,
            low.ravel()[full],
            high.ravel()[full],
            tiles.source.intervals[0][source],
            tiles.target.intervals[0][target],
            band.ravel()[full],
        )

    @property
    def width(self) -> Integers:
        width: Integers = self.high - self.low
        return width


Factor = Callable[[Pieces, int], Integers]
"""A function that takes the pieces along a dimension and the dimension's number, and returns each
piece's factor in the quantity to sum, as an int64 array."""


@dataclass(frozen=True)
class Sums:
    """Sums over the transfers of an exchange, of quantities that are products of factors."""

    exchange: Exchange

    @cached_property
    def pieces(self) -> tuple[Pieces, ...]:
        return tuple(Pieces.of(self.exchange, axis) for axis in range(len(self.exchange.dims)))

    @cached_property
    def _members(self) -> tuple[Integers, Integers]:
        """The target positions and the source positions of the devices that are in both meshes."""
        receivers = np.arange(self.exchange.target.mesh.size, dtype=np.int64)
        held = self.exchange.source_position_of(receivers)
        return receivers[held >= 0], held[held >= 0]

    def _factors(self, factor: Factor) -> list[Integers]:
        return [factor(pieces, axis) for axis, pieces in enumerate(self.pieces)]

    def received(self, factor: Factor) -> Integers:
        """Return the sum over the tiles that each target position receives from other devices, as
        int64[target positions]."""
        target = self.exchange.target
        positions = np.arange(target.mesh.size, dtype=np.int64)
        total = np.ones(positions.size, dtype=np.int64)
        for dim, pieces, values in zip(
            target.dims, self.pieces, self._factors(factor), strict=True
        ):
            of_shard = np.bincount(pieces.target, values, dim.parts).astype(np.int64)
            total *= of_shard[dim.index(positions)]
        receivers, _ = self._members
        total[receivers] -= self.kept(factor)
        return total

    def kept(self, factor: Factor) -> Integers:
        """Return the value of the tile that each device in both meshes copies locally, as
        int64[devices in both meshes]."""
        receivers, holders = self._members
        total = np.ones(receivers.size, dtype=np.int64)
        for tiles, pieces, values in zip(
            self.exchange.dims, self.pieces, self._factors(factor), strict=True
        ):
            total *= _of_pairs(
                pieces,
                values,
                tiles.target.parts,
                tiles.source.index(holders),
                tiles.target.index(receivers),
            )
        return total

    def remote(self, factor: Factor) -> int:
        """Return the sum over all transfers between two devices."""
        return int(self.received(factor).sum())

    def local(self, factor: Factor) -> int:
        """Return the sum over all local copies."""
        return int(self.kept(factor).sum())


def _of_pairs(
    pieces: Pieces, values: Integers, parts: int, source: Integers, target: Integers
) -> Integers:
    """Return the sum over the pieces of each requested pair of source and target shards, 0 for a
    pair without common elements."""
    keys, group = np.unique(pieces.source * parts + pieces.target, return_inverse=True)
    sums = np.bincount(group, values, keys.size).astype(np.int64)
    wanted = source * parts + target
    slot = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
    result: Integers = np.where(keys[slot] == wanted, sums[slot], 0)
    return result


def cut(
    low: Integers, high: Integers, origin: Integers, step: int
) -> tuple[Integers, Integers, Integers]:
    """Cut ranges at `origin` plus multiples of `step`. Return (index of the range, low, high) for
    every resulting part."""
    first, last = (low - origin) // step, (high - 1 - origin) // step
    count = last - first + 1
    number = np.repeat(np.arange(low.size, dtype=np.int64), count)
    ends = np.cumsum(count)
    block = np.arange(number.size, dtype=np.int64) - np.repeat(ends - count, count) + first[number]
    start = origin[number] + block * step
    return number, np.maximum(low[number], start), np.minimum(high[number], start + step)


def covered(low: Integers, high: Integers, unit: int) -> Integers:
    """Return, for each range, the number of elements of the whole units that cover it."""
    elements: Integers = -(-high // unit) * unit - low // unit * unit
    return elements


def widest(exchange: Exchange, axis: int) -> int:
    """Return the extent of the widest piece along a dimension."""
    whole = exchange.dims[axis].max_width
    if not is_cut(exchange, axis):
        return whole
    _, end = exchange.piece(whole, 0)
    return int(end)


def reaches(exchange: Exchange, window: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the extents of the source and of the target shard, padded so that they contain every
    window."""
    ends = [_reach(exchange, axis, extent) for axis, extent in enumerate(window)]
    shapes = exchange.source.local_shape, exchange.target.local_shape
    source, target = (
        tuple(map(max, far, shape))
        for far, shape in zip(zip(*ends, strict=True), shapes, strict=True)
    )
    return source, target


def _reach(exchange: Exchange, axis: int, window: int) -> tuple[int, int]:
    tiles = exchange.dims[axis]
    pairs = tiles.pairs
    from_source = pairs.low - tiles.source.intervals[0][pairs.source]
    from_target = pairs.low - tiles.target.intervals[0][pairs.target]
    # A tile's last piece starts at most this far into the tile.
    into = int(pairs.width.max()) if is_cut(exchange, axis) else 0
    return int(from_source.max()) + into + window, int(from_target.max()) + into + window


def is_cut(exchange: Exchange, axis: int) -> bool:
    """Return whether tiles are cut into pieces along a dimension."""
    return exchange.rule.pieces > 1 and axis == exchange.rule.cut
