"""How tiles are copied: merged dimensions, the width of loads and stores, and the shape of a block.

A tile is a box in two shards, each contiguous in memory. If every tile spans the whole shard along
a dimension on both sides, that dimension and the one before it have no gaps between them, and are
merged into one group. A tile then consists of rows of contiguous elements: a row runs along the
last group, and the groups before it number the rows. In a reshard that moves whole shards, a tile
is one row.

Rows are moved in units: the widest integers of up to 8 bytes that divide the rows' starts, ends and
distances. These depend only on the last group, whose extent in a shard is the distance between
rows. If 16 bytes divide them all, every load and store takes 16 bytes (`lines`). If 16 bytes divide
them only for some tiles, rows that are equally aligned in both shards are moved in 16 bytes except
at their ends, and other rows in units (`mixed`). Otherwise all rows are moved in units (`units`).

If terms are reduced, units are elements, and the form is never `mixed`.
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
"""The bytes of the widest load or store that every GPU has."""

WIDEST_UNIT = 8
"""The bytes of the widest unit, an integer."""

BLOCK_BYTES = 8192
"""The most bytes that a program moves. Each of 128 threads then has four loads of 16 bytes in
flight."""

BLOCK_UNITS = 2048
"""The most units that a program moves: 16 for each of 128 threads."""

ROW_BYTES = 512
"""The fewest bytes in a row of a block, unless the tile's rows are shorter: 16 for each of a warp's
32 threads."""

THREADS = 256
"""The most threads of a program: four warps of 64 threads on AMD. On NVIDIA GPUs, a warp has 32
threads."""

IDLE = 8
"""At most one in this many units of a row of blocks may be idle."""

Form = Literal["lines", "mixed", "units"]


@dataclass(frozen=True)
class Moves:
    """The tiles of an exchange as rows. `itemsize`: the bytes of an element."""

    exchange: Exchange
    itemsize: int

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The groups of merged dimensions, major to minor."""
        groups: list[tuple[int, ...]] = []
        for axis in range(self.exchange.source.hidden, len(self.exchange.dims)):
            if groups and self.is_whole(axis):
                groups[-1] = (*groups[-1], axis)
            else:
                groups.append((axis,))
        return tuple(groups)

    @cached_property
    def unit(self) -> int:
        """The bytes of a unit: a power of two that divides the starts, ends and distances of rows,
        or the bytes of an element if terms are reduced."""
        if self.exchange.operator is not None:
            return self.itemsize
        divisor = self._row_divisor()
        return min(divisor & -divisor, WIDEST_UNIT)

    @cached_property
    def form(self) -> Form:
        """How rows are copied: see the module's docstring."""
        if self._row_divisor() % LINE == 0:
            return "lines"
        is_mixed = self.exchange.operator is None and self._is_alike().any()
        return "mixed" if is_mixed else "units"

    @property
    def has_ends(self) -> bool:
        """Whether some rows are copied in 16 bytes but for their ends, which are copied in
        units."""
        return self.form == "mixed"

    def is_whole(self, axis: int) -> bool:
        """Return whether every tile spans its source shard and its target shard along a
        dimension."""
        return all(spans(self.exchange, axis))

    @property
    def unit_elements(self) -> int:
        return self.unit // self.itemsize

    @property
    def lanes(self) -> int:
        """The number of units in one load or store of 16 bytes; 1 in the form `units`."""
        return 1 if self.form == "units" else LINE // self.unit

    @cached_property
    def widest(self) -> tuple[int, ...]:
        """The largest extent of any tile along each group, in elements."""
        dims = self.exchange.dims
        return tuple(math.prod(dims[axis].max_width for axis in group) for group in self.groups)

    @cached_property
    def block(self) -> tuple[int, int]:
        """The number of rows that a program moves, and of units in each."""
        rows = self.widest[-2] if len(self.groups) > 1 else 1
        return block_shape(rows, self.widest[-1] // self.unit_elements, self.unit, self.lanes)

    def blocks(self, unit_elements: int) -> tuple[int, ...]:
        """Return the number of blocks of the largest tile along each group, for units of
        `unit_elements` elements. Along groups before the last two, a block is one index."""
        row = -(-self.widest[-1] // unit_elements)
        if self.has_ends:
            row += self.lanes - 1  # the first 16 bytes may start before the row
        counts = (*self.widest[:-1], row)
        sizes = (1,) * len(counts[:-2]) + self.block
        return tuple(-(-n // size) for n, size in zip(counts, sizes[-len(counts) :], strict=True))

    @property
    def line_share(self) -> float:
        """The fraction of the bytes of all tiles that loads and stores of 16 bytes move."""
        if not self.has_ends:
            return float(self.form == "lines")
        (begin, _), width = self._starts(), self._widths()
        first = -(-begin // LINE) * LINE
        covered = np.maximum((begin + width) // LINE * LINE - first, 0)
        return float((covered * self._is_alike()).sum() / width.sum())

    @property
    def _row(self) -> DimTiles:
        """The first dimension of the last group: along it, tiles cut rows of shards."""
        return self.exchange.dims[self.groups[-1][0]]

    @cached_property
    def _step(self) -> int:
        """A divisor, for all tiles, of the bytes of one index along the dimension `_row`."""
        whole = [self.exchange.dims[axis].pairs.width for axis in self.groups[-1][1:]]
        return math.prod(int(np.gcd.reduce(width)) for width in whole) * self.itemsize

    def _starts(self) -> tuple[Integers, Integers]:
        """Return where rows start in their source and in their target shard, in bytes, for each
        pair of shards."""
        pairs = self._row.pairs
        lows = self._row.source.intervals[0], self._row.target.intervals[0]
        return (
            (pairs.low - lows[0][pairs.source]) * self._step,
            (pairs.low - lows[1][pairs.target]) * self._step,
        )

    def _widths(self) -> Integers:
        return self._row.pairs.width * self._step

    def _distances(self) -> tuple[Integers, Integers]:
        """Return the distances between rows in their source and in their target shard, in bytes,
        for each pair of shards."""
        pairs, found = self._row.pairs, []
        for side, index in ((self._row.source, pairs.source), (self._row.target, pairs.target)):
            low, high = side.intervals
            found.append((high - low)[index] * self._step)
        return found[0], found[1]

    def _row_divisor(self) -> int:
        """Return the greatest common divisor of all starts, lengths and distances of rows, in
        bytes."""
        numbers = [*self._starts(), self._widths()]
        if len(self.groups) > 1:
            numbers += self._distances()
        divisor = int(np.gcd.reduce(np.concatenate(numbers)))
        rule = self.exchange.rule
        if rule.pieces > 1 and rule.cut == self.groups[-1][0]:
            divisor = math.gcd(divisor, rule.unit * self._step)
        return divisor

    def _is_alike(self) -> np.ndarray:
        """Return, for each pair of shards, whether rows have the same alignment to 16 bytes in both
        and are long enough to contain 16 aligned bytes."""
        source, target = self._starts()
        alike: np.ndarray = ((source - target) % LINE == 0) & (self._widths() >= 2 * LINE)
        if len(self.groups) > 1:
            for distance in self._distances():
                alike = alike & (distance % LINE == 0)
        return alike


def spans(exchange: Exchange, axis: int) -> tuple[bool, bool]:
    """Return whether every tile spans its source shard, and whether it spans its target shard,
    along a dimension."""
    rule = exchange.rule
    is_cut = rule.pieces > 1 and rule.cut == axis
    return (False, False) if is_cut else exchange.dims[axis].spans


def together(exchange: Exchange) -> tuple[str, ...]:
    """Return the sides ("source", "target") on which every tile is contiguous in its shard.

    A tile is contiguous if it spans its shard along every dimension after the first one along which
    it has several indices. Tiles combine the pieces of all dimensions, so checking the largest
    pieces suffices.
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
    """Return the shape of a program's block: its rows, and the units of a row, as powers of two.
    `rows`, `units`: the extents of the largest tile; `unit`: the bytes of a unit.

    Make a block's rows as long as fits, or shorter if more than one in IDLE units would be idle,
    but at least ROW_BYTES; then use as many rows as still fit. If one instruction moves `lanes`
    units, every thread has at least that many, as Triton requires.
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
