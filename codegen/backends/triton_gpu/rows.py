"""How a GPU moves tiles: merged dimensions, the width of loads and stores, the shape of a block.

A tile is a box in two shards, each contiguous. Along a dimension in which every tile spans the
whole shard on both sides, a step of the dimension before it is a step over memory without a gap:
the two merge into one group. The remainder of a tile is rows of contiguous elements: the last group
is the row, the groups before it number the rows. A reshard that moves whole shards is one row.

Rows are moved in units, the widest integers of up to 8 bytes whose size divides the rows' starts,
ends and distances. Only the last group matters, because its length is the distance of rows. If 16
bytes divide all of these, every load and store takes 16 bytes (`lines`). If they do so only for
some tiles, rows with equal alignment in both shards are moved in 16 bytes except at their ends, and
others in units (`mixed`); else all are moved in units (`units`).

Reduced terms are numbers, so their units are elements, and rows that are not all lines are moved in
units.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from shardwright.ir.algebra.index import Integers
from shardwright.ir.exchange import Exchange
from shardwright.ir.tiles import DimTiles

LINE = 16
"""Bytes of the widest load and store that every GPU has."""

WIDEST_UNIT = 8
"""Bytes of the widest integer."""

BLOCK_BYTES = 8192
"""Most bytes that a program moves: four loads of 16 bytes in flight for each of 128 threads."""

BLOCK_UNITS = 2048
"""Most units that a program moves: 16 per thread."""

ROW_BYTES = 512
"""Least bytes in a row of a block: 16 for each thread of a warp."""

THREADS = 256
"""Threads of the largest program: four warps of 64 (of 32 on NVIDIA)."""

IDLE = 8
"""One in this many units of a row may be idle in a block."""

Form = Literal["lines", "mixed", "units"]


@dataclass(frozen=True)
class Moves:
    """The tiles of an exchange as rows. `itemsize` is in bytes."""

    exchange: Exchange
    itemsize: int

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The dimensions, with those contiguous on both sides merged; major to minor."""
        groups: list[tuple[int, ...]] = []
        for axis in range(self.exchange.source.hidden, len(self.exchange.dims)):
            if groups and self.is_whole(axis):
                groups[-1] = (*groups[-1], axis)
            else:
                groups.append((axis,))
        return tuple(groups)

    @cached_property
    def unit(self) -> int:
        """Bytes moved as one: a power of two that divides starts, ends and distances of rows."""
        if self.exchange.operator is not None:
            return self.itemsize
        divisor = self._row_divisor()
        return min(divisor & -divisor, WIDEST_UNIT)

    @cached_property
    def form(self) -> Form:
        """Return whether all rows, some, or none consist of 16-byte lines on both sides."""
        if self._row_divisor() % LINE == 0:
            return "lines"
        is_mixed = self.exchange.operator is None and self._is_alike().any()
        return "mixed" if is_mixed else "units"

    def is_whole(self, axis: int) -> bool:
        """Return whether every tile spans its source shard and its target shard along a
        dimension."""
        return all(spans(self.exchange, axis))

    @property
    def unit_elements(self) -> int:
        """Elements of a unit."""
        return self.unit // self.itemsize

    @property
    def lanes(self) -> int:
        """Units of a line if lines are known, else 1."""
        return 1 if self.form == "units" else LINE // self.unit

    @cached_property
    def widest(self) -> tuple[int, ...]:
        """The largest extent of a tile along each group, in elements."""
        dims = self.exchange.dims
        return tuple(math.prod(dims[axis].max_width for axis in group) for group in self.groups)

    @cached_property
    def block(self) -> tuple[int, int]:
        """Rows, and units of a row, that a program moves."""
        rows = self.widest[-2] if len(self.groups) > 1 else 1
        return block_shape(rows, self.widest[-1] // self.unit_elements, self.unit, self.lanes)

    def blocks(self, unit_elements: int) -> tuple[int, ...]:
        """Return the blocks of the largest tile along each group, with rows cut into units of this
        many elements.

        A block before the last two groups is one index.
        """
        row = -(-self.widest[-1] // unit_elements)
        if self.form == "mixed":
            row += self.lanes - 1  # the first line of a row may begin before it
        counts = (*self.widest[:-1], row)
        sizes = (1,) * len(counts[:-2]) + self.block
        return tuple(-(-n // size) for n, size in zip(counts, sizes[-len(counts) :], strict=True))

    @property
    def line_share(self) -> float:
        """The share of a tensor's bytes that 16-byte loads and stores move."""
        if self.form != "mixed":
            return float(self.form == "lines")
        (begin, _), width = self._starts(), self._widths()
        first = -(-begin // LINE) * LINE
        covered = np.maximum((begin + width) // LINE * LINE - first, 0)
        return float((covered * self._is_alike()).sum() / width.sum())

    @property
    def _row(self) -> DimTiles:
        """The first dimension of the last group, along which rows are cut."""
        return self.exchange.dims[self.groups[-1][0]]

    @cached_property
    def _step(self) -> int:
        """Bytes that divide one index of that dimension."""
        whole = [self.exchange.dims[axis].pairs.width for axis in self.groups[-1][1:]]
        return math.prod(int(np.gcd.reduce(width)) for width in whole) * self.itemsize

    def _starts(self) -> tuple[Integers, Integers]:
        """Return the rows' starts in their source and target shards, in bytes, by pair."""
        pairs = self._row.pairs
        lows = self._row.source.intervals[0], self._row.target.intervals[0]
        return (
            (pairs.low - lows[0][pairs.source]) * self._step,
            (pairs.low - lows[1][pairs.target]) * self._step,
        )

    def _widths(self) -> Integers:
        """Return the length of rows, in bytes, by pair."""
        return self._row.pairs.width * self._step

    def _distances(self) -> tuple[Integers, Integers]:
        """Return the rows' distances in their source and target shards, in bytes, by pair."""
        pairs, found = self._row.pairs, []
        for side, index in ((self._row.source, pairs.source), (self._row.target, pairs.target)):
            low, high = side.intervals
            found.append((high - low)[index] * self._step)
        return found[0], found[1]

    def _row_divisor(self) -> int:
        """Return bytes that divide every start, width and distance of rows."""
        numbers = [*self._starts(), self._widths()]
        if len(self.groups) > 1:
            numbers += self._distances()
        divisor = int(np.gcd.reduce(np.concatenate(numbers)))
        rule = self.exchange.rule
        if rule.pieces > 1 and rule.cut == self.groups[-1][0]:
            divisor = math.gcd(divisor, rule.unit * self._step)
        return divisor

    def _is_alike(self) -> np.ndarray:
        """Return, for each pair, whether rows have equal alignment to lines in both shards and fill
        one."""
        source, target = self._starts()
        alike: np.ndarray = ((source - target) % LINE == 0) & (self._widths() >= 2 * LINE)
        if len(self.groups) > 1:
            for distance in self._distances():
                alike = alike & (distance % LINE == 0)
        return alike


def spans(exchange: Exchange, axis: int) -> tuple[bool, bool]:
    """Return whether every tile spans its source shard and its target shard along a dimension."""
    rule = exchange.rule
    is_cut = rule.pieces > 1 and rule.cut == axis
    return (False, False) if is_cut else exchange.dims[axis].spans


def together(exchange: Exchange) -> tuple[str, ...]:
    """Return the ends, "source" and "target", at which each tile is contiguous in its shard.

    A tile is contiguous if no dimension that it covers partly comes after one with several of its
    indices. This holds for all tiles or none, since tiles combine the dimensions' pieces freely.
    """
    found = []
    for end, name in enumerate(("source", "target")):
        wide = apart = False
        for axis in range(exchange.source.hidden, len(exchange.dims)):
            apart = apart or (wide and not spans(exchange, axis)[end])
            wide = wide or exchange.dims[axis].max_width > 1
        found += [] if apart else [name]
    return tuple(found)


def block_shape(rows: int, units: int, unit: int, lanes: int = 1) -> tuple[int, int]:
    """Return the block of a program, rows and units of a row, for the largest tile; powers of two.

    A block has as many units of a row as fit, or fewer if more than one of IDLE units would be
    idle, but at least ROW_BYTES; then as many rows as still fit. If one instruction moves `lanes`
    units, every thread has that many, as Triton requires.
    """
    most = min(BLOCK_BYTES // unit, BLOCK_UNITS)
    columns = min(_power_of_two(units), most)
    shortest = min(columns, ROW_BYTES // unit)
    choices = [columns >> k for k in range((columns // shortest).bit_length())]
    idle = {choice: -units % choice for choice in choices}
    best = min(choices, key=idle.__getitem__)
    columns = next((choice for choice in choices if idle[choice] * IDLE <= units), best)
    least = THREADS * lanes // columns if lanes > 1 else 1
    if rows == 1:
        return 1, columns * max(least, 1)
    return max(min(_power_of_two(rows), most // columns), least), columns


def _power_of_two(extent: int) -> int:
    return 1 << (extent - 1).bit_length()
