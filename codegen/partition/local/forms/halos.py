"""Which rows of other shards a device needs beside its own: those that its windows reach into."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from shardwright.codegen.partition.local.forms.form import FormMove, SplitOp

Pairs = tuple[tuple[int, int], ...]  # of shards: who sends, who receives


@dataclass(frozen=True)
class HaloPart:
    """Rows `low` to `high` of the shard this many places after the own one; `pairs`: of whom any
    device needs them. What no shard has is zero."""

    hops: int
    low: int
    high: int
    pairs: Pairs


@dataclass(frozen=True)
class RowWindow:
    """The rows that each of `parts` shards of `extent` rows takes: `length` of them, the k-th from
    row `first + k * step` of the whole on, which may be outside it."""

    first: int
    step: int
    length: int
    extent: int
    parts: int

    def rows(self, shard: int) -> range:
        """Return the rows that a shard takes."""
        start = self.first + shard * self.step
        return range(start, start + self.length)

    @property
    def is_own(self) -> bool:
        """Does each shard take its own rows and no others?"""
        return (self.first, self.step, self.length) == (0, self.extent, self.extent)

    @property
    def is_outside(self) -> bool:
        """Does a shard take rows that there are not?"""
        every = [self.rows(shard) for shard in range(self.parts)]
        return any(rows.start < 0 or rows.stop > self.extent * self.parts for rows in every)

    @functools.cached_property
    def halo(self) -> tuple[HaloPart, ...]:
        """The parts that are put together, in order; a shard's rows lie among them."""
        low, high = self._reach()
        first, last = low // self.extent, (high - 1) // self.extent
        found = []
        for hops in range(first, last + 1):
            base = hops * self.extent
            part = max(low - base, 0), min(high - base, self.extent)
            found.append(HaloPart(hops, *part, tuple(self._pairs(hops, *part))))
        return tuple(found)

    def _reach(self) -> tuple[int, int]:
        """Return the first row that any shard takes, and the last, counted from its own first."""
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
        """How much later, in what is put together, the rows of each further shard begin, and where
        those of the first do."""
        return self.step - self.extent, self.first - self._reach()[0]


def halo_moves(
    split: SplitOp, place: int, dim: int, window: RowWindow, size: int, before: Hashable
) -> Iterator[FormMove]:
    """Yield what devices send each other for the rows they take; `size`: bytes of a row, `before`:
    what the operand has been extended by along other dimensions."""
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
    """Yield for moves by how much each raises what the busiest device receives in all."""
    totals: dict[int, int] = {}
    most = 0
    for size, shards in zip(sizes, receivers, strict=True):
        for shard in shards:
            totals[shard] = totals.get(shard, 0) + size
        before, most = most, max(totals.values())
        yield most - before
