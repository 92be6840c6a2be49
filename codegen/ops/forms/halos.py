"""Halos: rows of neighbouring shards that the windows of a device cover."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from shardwright.codegen.ops.forms.form import FormMove, SplitOp

Pairs = tuple[tuple[int, int], ...]  # sending and receiving shards


@dataclass(frozen=True)
class HaloPart:
    """Rows `low` to `high` of the shard that is `hops` positions after a device's own. `pairs`: the
    transfers that some device needs. Rows outside the tensor are zero."""

    hops: int
    low: int
    high: int
    pairs: Pairs


@dataclass(frozen=True)
class RowWindow:
    """The rows that each shard needs. There are `parts` shards of `extent` rows; shard k needs
    `length` rows, starting at row `first + k * step` of the whole tensor. Rows outside the tensor
    may be included."""

    first: int
    step: int
    length: int
    extent: int
    parts: int

    def rows(self, shard: int) -> range:
        start = self.first + shard * self.step
        return range(start, start + self.length)

    @property
    def is_own(self) -> bool:
        return (self.first, self.step, self.length) == (0, self.extent, self.extent)

    @property
    def is_outside(self) -> bool:
        """Whether any shard needs rows outside the whole tensor."""
        every = [self.rows(shard) for shard in range(self.parts)]
        return any(rows.start < 0 or rows.stop > self.extent * self.parts for rows in every)

    @functools.cached_property
    def halo(self) -> tuple[HaloPart, ...]:
        """The parts of shards that, concatenated in order, contain the needed rows of every shard.
        Rows outside the tensor, which only shards at the ends need, are separate parts without
        pairs."""
        low, high = self._reach()
        first, last = low // self.extent, (high - 1) // self.extent
        found = []
        for hops in range(first, last + 1):
            base = hops * self.extent
            part = max(low - base, 0), min(high - base, self.extent)
            cuts = [part[0], *self._sent(hops, *part), part[1]] if hops else [*part]
            for start, stop in itertools.pairwise(cuts):
                if start < stop:
                    found.append(HaloPart(hops, start, stop, tuple(self._pairs(hops, start, stop))))
        return tuple(found)

    def _sent(self, hops: int, low: int, high: int) -> tuple[int, ...]:
        """Return the start and the end of the rows among `low` to `high` that some shard needs of
        the shard `hops` positions after it, or () if no shard needs any."""
        starts, stops = [], []
        for source, shard in self._pairs(hops, low, high):
            rows, base = self.rows(shard), source * self.extent
            starts.append(max(rows.start - base, low))
            stops.append(min(rows.stop - base, high))
        return (min(starts), max(stops)) if starts else ()

    def _reach(self) -> tuple[int, int]:
        """Return the start and the end of the rows that any shard needs, relative to the shard's
        first row."""
        starts = [self.rows(k).start - k * self.extent for k in range(self.parts)]
        return min(starts), max(starts) + self.length

    def _pairs(self, hops: int, low: int, high: int) -> Iterator[tuple[int, int]]:
        for shard in range(self.parts):
            source, rows = shard + hops, self.rows(shard)
            base = source * self.extent
            if 0 <= source < self.parts and base + low < rows.stop and rows.start < base + high:
                yield source, shard

    @property
    def offset(self) -> tuple[int, int]:
        """The start of a shard's needed rows in the concatenated parts: its increase from shard to
        shard, and its value for the first shard."""
        return self.step - self.extent, self.first - self._reach()[0]


def halo_moves(
    split: SplitOp, place: int, dim: int, window: RowWindow, size: int, before: Hashable
) -> Iterator[FormMove]:
    """Yield the transfers of needed rows. `size`: the bytes of a row; `before`: identifies the rows
    already added along other dimensions of the operand."""
    parts = [part for part in window.halo if part.hops and part.pairs]
    sizes = [(part.high - part.low) * size for part in parts]
    receivers = [[target for _, target in part.pairs] for part in parts]
    for part, received in zip(parts, at_busiest(sizes, receivers), strict=True):
        count = part.high - part.low
        many = "a row" if count == 1 else f"{count} rows"
        where = "after" if part.hops > 0 else "before"
        beside = "beside" if abs(part.hops) == 1 else f"{abs(part.hops)} places away"
        what = f"windows reach {many} into the shard {beside}, {where} their own"
        axes, rows = split.axes(place, dim), (part, before)
        yield FormMove("permute", axes, place, dim, received, what, rows)


def at_busiest(sizes: Sequence[int], receivers: Iterable[Iterable[int]]) -> Iterator[int]:
    """Yield the bytes that each move adds on the busiest device. `sizes`: the bytes of each move;
    `receivers`: the shards that receive each move."""
    totals: dict[int, int] = {}
    most = 0
    for size, shards in zip(sizes, receivers, strict=True):
        for shard in shards:
            totals[shard] = totals.get(shard, 0) + size
        before, most = most, max(totals.values())
        yield most - before
