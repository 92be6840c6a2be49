"""Tiles: the intersections of source and target shards, computed separately for each tensor
dimension.

The tile of a source shard a and a target shard b is the product over dimensions of `[max(lo_s(a),
lo_t(b)), min(hi_s(a), hi_t(b)))`. For flat splits with shards of S and T elements, let g = gcd(S,
T). The boundaries of both splits repeat together every S*T/g elements. A period contains S/g + T/g
- 1 tiles, and the width of every tile is a multiple of g, except of a tile that ends at the extent.

Boundaries at k*S - a and at j*T - b, for all integers k and j, also repeat every S*T/g elements.
Some of them coincide if and only if g divides a - b; a period then has S/g + T/g - 1 tiles, else
S/g + T/g.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shardwright.ir.algebra.index import Number, maximum, minimum
from shardwright.ir.arrays import Integers
from shardwright.ir.cuts import Cut
from shardwright.ir.layout import DimLayout


@dataclass(frozen=True)
class TilePairs:
    """The non-empty tiles of one dimension, as int64 arrays of equal length."""

    source: Integers  # the index of the source shard of each tile
    target: Integers  # the index of the target shard, ascending
    low: Integers  # the start of each tile along the dimension
    high: Integers  # the end of each tile

    @property
    def width(self) -> Integers:
        """The number of elements of each tile along the dimension, int64 [n]."""
        width: Integers = self.high - self.low
        return width


def tiles_of(source: Cut, target: Cut) -> TilePairs:
    """Return the non-empty tiles of two cuts of one dimension."""
    low, high = target.intervals
    full = np.flatnonzero(high > low)
    # In a hidden dimension, the source may have fewer shards than the target.
    first, last = (np.minimum(o, source.parts - 1) for o in source.owners(low[full], high[full]))
    count = np.broadcast_to(last - first + 1, full.shape)
    index = np.repeat(full, count)
    ends = np.cumsum(count)
    step = np.arange(index.size, dtype=np.int64) - np.repeat(ends - count, count)
    peer = np.repeat(np.broadcast_to(first, full.shape), count) + step
    peer_low, peer_high = (end[peer] for end in source.intervals)
    tile_low = np.maximum(peer_low, low[index])
    tile_high = np.minimum(peer_high, high[index])
    keep = tile_high > tile_low
    return TilePairs(peer[keep], index[keep], tile_low[keep], tile_high[keep])


def period(source: Cut, target: Cut) -> int | None:
    """Return S*T/g, the number of elements after which the boundaries of both cuts repeat, or None
    if the boundaries of one cut do not repeat."""
    if source.step is None or target.step is None:
        return None
    return math.lcm(source.step, target.step)


def tiles_per_period(source: Cut, target: Cut) -> int | None:
    """Return the number of tiles in a period: S/g + T/g, minus 1 if g divides the difference of the
    offsets. Return None if the boundaries of one cut do not repeat."""
    if source.step is None or target.step is None:
        return None
    g = math.gcd(source.step, target.step)
    meet = (source.phase - target.phase) % g == 0
    return source.step // g + target.step // g - meet


@dataclass(frozen=True)
class DimTiles:
    """One tensor dimension, with its source split and its target split."""

    source: DimLayout
    target: DimLayout

    def tile(self, source_index: Number, target_index: Number) -> tuple[Number, Number]:
        """Return the half-open range (low, high) that a source and a target shard share. It is
        empty if low >= high."""
        source_low, source_high = self.source.interval(source_index)
        target_low, target_high = self.target.interval(target_index)
        return maximum(source_low, target_low), minimum(source_high, target_high)

    def peers_of_target(self, target_index: int) -> range:
        """Return the source shards that intersect a target shard."""
        return _peers(self.target, self.source, target_index)

    def peers_of_source(self, source_index: int) -> range:
        """Return the target shards that intersect a source shard."""
        return _peers(self.source, self.target, source_index)

    @property
    def is_flat(self) -> bool:
        """Whether both splits have one level of division, so that closed forms describe the
        tiles."""
        return self.source.is_flat and self.target.is_flat

    @property
    def grain(self) -> int:
        """An integer that divides the start of every tile and the width of every tile except the
        last."""
        if self.is_flat:
            return math.gcd(*(d.size for d in (self.source, self.target) if d.parts > 1)) or (
                self.source.extent
            )
        cuts = np.concatenate([self.source.intervals[0], self.target.intervals[0]])
        inner = cuts[cuts < self.source.extent]
        return int(np.gcd.reduce(inner)) or self.source.extent

    @property
    def period(self) -> int | None:
        """The number of elements after which the boundaries repeat, S*T/g; None if a split is
        nested."""
        return period(self.source.cut, self.target.cut)

    @property
    def tiles_per_period(self) -> int | None:
        """The number of tiles in a period, S/g + T/g - 1; None if a split is nested."""
        return tiles_per_period(self.source.cut, self.target.cut)

    @cached_property
    def pairs(self) -> TilePairs:
        """The non-empty tiles. There are at most source.parts + target.parts - 1."""
        return tiles_of(self.source.cut, self.target.cut)

    @property
    def spans(self) -> tuple[bool, bool]:
        """Whether every tile is as wide as its source shard, and whether every tile is as wide
        as its target shard."""
        pairs = self.pairs
        sides = ((self.source, pairs.source), (self.target, pairs.target))
        of_source, of_target = (
            all(
                np.array_equal(end[index], cut)
                for end, cut in zip(side.intervals, (pairs.low, pairs.high), strict=True)
            )
            for side, index in sides
        )
        return of_source, of_target

    @property
    def max_width(self) -> int:
        """The number of elements of the widest tile along the dimension."""
        return int(self.pairs.width.max())

    @property
    def max_peers_of_target(self) -> int:
        """The largest number of source shards that a target shard intersects, counting empty shards
        in between."""
        return _most_peers(self.target, self.source)

    @property
    def max_peers_of_source(self) -> int:
        """The largest number of target shards that a source shard intersects, counting empty shards
        in between."""
        return _most_peers(self.source, self.target)


def _most_peers(own: DimLayout, other: DimLayout) -> int:
    low, high = own.intervals
    first, last = other.owners(low, high)
    return int(np.max(last - first + 1))


def _peers(own: DimLayout, other: DimLayout, index: int) -> range:
    low, high = (int(end[index]) for end in own.intervals)
    if low == high:
        return range(0)
    first, last = other.owners(low, high)
    return range(int(first), int(last) + 1)
