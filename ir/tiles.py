"""Tiles: the intersections of source and target shards, exactly, one tensor dimension at a time.

A tile of a source shard a and a target shard b is the product over dimensions of
`[max(lo_s(a), lo_t(b)), min(hi_s(a), hi_t(b)))`. With flat splits of sizes S and T and
g = gcd(S, T), the cuts repeat every S*T/g elements, a period holds S/g + T/g - 1 tiles, and every
width except that of a tile ending at the extent is a multiple of g. This answers the open questions
of the second source document ("what is the range of (k, l, u, v)?", "the cut pattern repeats").

Cuts at k*S - a and at j*T - b also repeat every S*T/g. They coincide somewhere only if g divides a
- b; a period then has one tile fewer than it has cuts.
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
    """The non-empty tiles of one dimension in tensor order, as int64 arrays of one length."""

    source: Integers
    target: Integers
    low: Integers
    high: Integers

    @property
    def width(self) -> Integers:
        """The extent of every tile."""
        width: Integers = self.high - self.low
        return width


def tiles_of(source: Cut, target: Cut) -> TilePairs:
    """Return the non-empty tiles of two cuts of one dimension."""
    low, high = target.intervals
    full = np.flatnonzero(high > low)
    # The source may have fewer partial sums than the target.
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
    """Return the length after which both cuts repeat, S*T/g, or None if one does not repeat."""
    if source.step is None or target.step is None:
        return None
    return math.lcm(source.step, target.step)


def tiles_per_period(source: Cut, target: Cut) -> int | None:
    """Return S/g + T/g, minus 1 if g divides the difference of the offsets; None if a cut does not
    repeat."""
    if source.step is None or target.step is None:
        return None
    g = math.gcd(source.step, target.step)
    meet = (source.phase - target.phase) % g == 0
    return source.step // g + target.step // g - meet


@dataclass(frozen=True)
class DimTiles:
    """One tensor dimension with the splits of both sides."""

    source: DimLayout
    target: DimLayout

    def tile(self, source_index: Number, target_index: Number) -> tuple[Number, Number]:
        """Return the half-open tensor range that two shards share; empty if low >= high."""
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
        """Whether the closed forms of the cut pattern hold: both sides have one level of chunks."""
        return self.source.is_flat and self.target.is_flat

    @property
    def grain(self) -> int:
        """An integer that divides the start of every tile and every width except the last
        tile's."""
        if self.is_flat:
            return math.gcd(*(d.size for d in (self.source, self.target) if d.parts > 1)) or (
                self.source.extent
            )
        cuts = np.concatenate([self.source.intervals[0], self.target.intervals[0]])
        inner = cuts[cuts < self.source.extent]
        return int(np.gcd.reduce(inner)) or self.source.extent

    @property
    def period(self) -> int | None:
        """The length after which the cut pattern repeats, S*T/g; None if a split is nested."""
        return period(self.source.cut, self.target.cut)

    @property
    def tiles_per_period(self) -> int | None:
        """S/g + T/g - 1; None if a split is nested."""
        return tiles_per_period(self.source.cut, self.target.cut)

    @cached_property
    def pairs(self) -> TilePairs:
        """All non-empty tiles. At most source.parts + target.parts - 1 of them."""
        return tiles_of(self.source.cut, self.target.cut)

    @property
    def spans(self) -> tuple[bool, bool]:
        """Whether every tile is as wide as both its source shard and its target shard."""
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
        """The extent of the widest tile."""
        return int(self.pairs.width.max())

    @property
    def max_peers_of_target(self) -> int:
        """The most source shards, including empty ones in between, that a target shard
        intersects."""
        return _most_peers(self.target, self.source)

    @property
    def max_peers_of_source(self) -> int:
        """The most target shards, including empty ones in between, that a source shard
        intersects."""
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
