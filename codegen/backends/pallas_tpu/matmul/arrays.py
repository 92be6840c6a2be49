"""The places of a matmul kernel's blocks in its arrays, as expressions of a product `block`. An
extent need not be a multiple of its blocks: the last block ends with the extent, rounded up to
whole memory tiles, which XLA allocates anyway. So nothing is padded before a kernel or cut after
it, unless parts of an array do not begin at a tile.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from shardwright.codegen.backends.pallas_tpu.matmul.blocks import DIMS, FACTORS, Extents
from shardwright.codegen.backends.pallas_tpu.memory import LANES, round_up


@dataclass(frozen=True)
class BlockedArray:
    """A side's array in the kernel's form. `extents`: those of one part along `factor`, (batch, i,
    j, k); `parts`: their number; `halves`: their sizes; `blocks`: those of a product; `pitch`: the
    distance of halves if they are `apart` because they do not begin at tiles; `itemsize`: bytes of
    an element; `tiled`: whether it has whole memory tiles."""

    side: str
    extents: Extents
    blocks: Extents
    factor: int
    parts: int
    halves: tuple[int, ...]
    pitch: int
    itemsize: int
    apart: bool = False
    tiled: bool = False

    @staticmethod
    def of(
        side: str,
        extents: Extents,
        blocks: Extents,
        factor: int,
        parts: int,
        halves: tuple[int, ...],
        pitch: int,
        itemsize: int,
    ) -> BlockedArray:
        """Return an array, with halves apart if any does not begin at a tile."""
        found = BlockedArray(side, extents, blocks, factor, parts, halves, pitch, itemsize)
        starts = (halves[0] * (len(halves) - 1), sum(halves) * (parts > 1))
        tiled = factor not in DIMS[side] or not any(start % found.tile(factor) for start in starts)
        return replace(found, apart=not tiled)

    def come(self, *, tiled: bool) -> BlockedArray:
        """Return the places for arrivals of one part, halves apart; `tiled`: in whole tiles, if the
        arriving blocks together must match the wait."""
        return replace(self, parts=1, apart=True, tiled=tiled)

    def tile(self, factor: int) -> int:
        """Return the memory tile along a factor."""
        rows = 8 if self.itemsize > 1 else 32
        return (1, rows, LANES)[DIMS[self.side].index(factor)]

    @property
    def whole(self) -> tuple[int, ...]:
        """Its own extents."""
        return tuple(
            self.extents[f] * (self.parts if f == self.factor else 1) for f in DIMS[self.side]
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape in HBM. Arrays of few rows, and byte arrays whose rows are not multiples of 32,
        would be stored in smaller tiles, so they get whole tiles of rows."""
        places = self.pitch * self.parts * len(self.halves)
        batch, rows, columns = (
            places if f == self.factor and self.apart else extent
            for f, extent in zip(DIMS[self.side], self.whole, strict=True)
        )
        if self.tiled or rows <= 4 or self.itemsize == 1:
            rows = round_up(rows, self.tile(DIMS[self.side][1]))
        return batch, rows, round_up(columns, LANES) if self.tiled else columns

    @property
    def pieces(self) -> tuple[object, ...]:
        """The axis of halves that are apart, their pitch, then start and size of each; otherwise
        nothing."""
        if not self.apart:
            return ()
        sizes = self.halves * self.parts
        starts = itertools.accumulate(sizes, initial=0)
        pieces = zip(starts, sizes, strict=False)
        return DIMS[self.side].index(self.factor), self.pitch, *pieces

    def start(self, factor: int, part: str = "part_of(block)", way: str = "block.way") -> str:
        """Return the start of half a part along a factor."""
        if factor != self.factor:
            return "0"
        step, by = self.halves[0], sum(self.halves)
        if self.apart:
            step, by = self.pitch, self.pitch * len(self.halves)
        terms = [(by, part)] if self.parts > 1 else []
        terms += [(step, way)] if len(self.halves) > 1 else []
        return summed(terms)

    def block_start(self, factor: int) -> str:
        """Return the start of a block along a factor."""
        number = [(self.blocks[factor], f"block.{FACTORS[factor]}")]
        terms = [self.start(factor), summed(number) if self.count(factor) > 1 else "0"]
        found = " + ".join(term for term in terms if term != "0") or "0"
        return hinted(found, self.tile(factor))

    def count(self, factor: int) -> int:
        """Return the number of blocks of half a part along a factor."""
        return -(-max(self.ends(factor)) // self.blocks[factor])

    def ends(self, factor: int) -> tuple[int, ...]:
        """Return the end of half a part along a factor, by direction if they differ."""
        return self.halves if factor == self.factor else (self.extents[factor],)

    def block_size(self, factor: int) -> str:
        """Return the actual size of a block along a factor, in whole tiles."""
        tile, block = self.tile(factor), self.blocks[factor]
        ends = [round_up(end, tile) for end in self.ends(factor)]
        if all(end % block == 0 for end in ends):
            return str(block)
        if max(ends) < block:
            return hinted(by_way(ends), tile)
        before = f" - block.{FACTORS[factor]} * {block}" if self.count(factor) > 1 else ""
        return hinted(f"minimum({block}, {by_way(ends)}{before})", tile)

    def block(self, name: str, *lead: str) -> str:
        """Return a block in a named array, after the indices of leading dimensions."""
        batch, *dims = DIMS[self.side]
        spans = [f"pl.ds({self.block_start(f)}, {self.block_size(f)})" for f in dims]
        first = self.block_start(batch)
        first = "np.int32(0)" if first == "0" else first  # else 64 bits if JAX allows those
        return f"{name}.at[{', '.join([*lead, first, *spans])}]"

    def place(self, name: str, slot: str) -> str:
        """Return the actual part of a block in a VMEM slot."""
        _, *dims = DIMS[self.side]
        sizes = [self.block_size(f) for f in dims]
        is_whole = sizes == [str(self.blocks[f]) for f in dims]
        spans = [] if is_whole else [f"pl.ds(0, {size})" for size in sizes]
        return f"{name}.at[{', '.join([slot, *spans])}]"

    def half(self, name: str, *lead: str) -> str:
        """Return the half of the only part that goes in direction `way`, in a named array."""
        tile = self.tile(self.factor)
        sizes = [round_up(half, tile) for half in self.halves]
        start = hinted(self.start(self.factor, way="way"), tile)
        span = f"pl.ds({start}, {hinted(by_way(sizes, 'way'), tile)})"
        dims = [span if f == self.factor else ":" for f in DIMS[self.side]]
        return f"{name}.at[{', '.join([*lead, *dims])}]"

    def half_bytes(self, way: int) -> int:
        """Return the bytes of that half."""
        dims = zip(DIMS[self.side], self.shape, strict=True)
        extents = (
            round_up(self.halves[way], self.tile(f)) if f == self.factor else size
            for f, size in dims
        )
        return math.prod(extents) * self.itemsize


def summed(terms: list[tuple[int, str]]) -> str:
    """Return a sum of multiples.

    >>> summed([(4, "part"), (1, "way")]), summed([(0, "part")])
    ('part * 4 + way', '0')
    """
    found = [name if by == 1 else f"{name} * {by}" for by, name in terms if by]
    return " + ".join(found) or "0"


def hinted(text: str, tile: int) -> str:
    """Return an index declared to the compiler as a multiple of a tile."""
    return text if text.isdecimal() or tile == 1 else f"multiple({text}, {tile})"


def by_way(sizes: Sequence[int], way: str = "block.way") -> str:
    """Return the size for a direction."""
    if len(set(sizes)) == 1:
        return str(sizes[0])
    return f"by_way({way}, {', '.join(map(str, sizes))})"
