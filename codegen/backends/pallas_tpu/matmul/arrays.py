"""The positions of a matmul kernel's blocks in its arrays, as expressions of a product `block`.

An extent need not be a multiple of the block size. The last block ends at the extent rounded up to
whole memory tiles, which XLA allocates anyway. So no array is padded before a kernel or cut after
it, unless its parts do not start at memory tiles.
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
    """The array of a side ("a", "b" or "c") as the kernel takes it. It is split along `factor` into
    `parts` parts, and each part into halves, one per direction.

    `extents`: the extents of one part, (batch, i, j, k); `blocks`: the extents of a block;
    `halves`: the sizes of a part's halves along `factor`; `apart`: whether the halves are spaced
    `pitch` elements apart, because otherwise some would not start at a memory tile; `itemsize`: the
    bytes of an element; `tiled`: whether the array is padded to whole memory tiles."""

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
        """Return an array. Space its halves apart if any would not start at a memory tile."""
        found = BlockedArray(side, extents, blocks, factor, parts, halves, pitch, itemsize)
        starts = (halves[0] * (len(halves) - 1), sum(halves) * (parts > 1))
        tiled = factor not in DIMS[side] or not any(start % found.tile(factor) for start in starts)
        return replace(found, apart=not tiled)

    def come(self, *, tiled: bool) -> BlockedArray:
        """Return the array into which one arriving part is written, with its halves spaced apart.
        `tiled`: whether to pad it to whole memory tiles, so that all arriving blocks add up to the
        number of bytes that the wait expects."""
        return replace(self, parts=1, apart=True, tiled=tiled)

    def tile(self, factor: int) -> int:
        """Return the extent of a memory tile along a factor."""
        rows = 8 if self.itemsize > 1 else 32
        return (1, rows, LANES)[DIMS[self.side].index(factor)]

    @property
    def whole(self) -> tuple[int, ...]:
        return tuple(
            self.extents[f] * (self.parts if f == self.factor else 1) for f in DIMS[self.side]
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """The array's shape in HBM. XLA would store arrays of few rows, and byte arrays whose
        number of rows is not a multiple of 32, in smaller tiles, so their rows are padded to whole
        tiles."""
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
        """If the halves are spaced apart: the axis along which they are cut, their pitch, then each
        one's (start, size) without padding. Otherwise empty."""
        if not self.apart:
            return ()
        sizes = self.halves * self.parts
        starts = itertools.accumulate(sizes, initial=0)
        pieces = zip(starts, sizes, strict=False)
        return DIMS[self.side].index(self.factor), self.pitch, *pieces

    def start(self, factor: int, part: str = "part_of(block)", way: str = "block.way") -> str:
        """Return the expression for where, along a factor, the half of a part that travels in
        direction `way` starts."""
        if factor != self.factor:
            return "0"
        step, by = self.halves[0], sum(self.halves)
        if self.apart:
            step, by = self.pitch, self.pitch * len(self.halves)
        terms = [(by, part)] if self.parts > 1 else []
        terms += [(step, way)] if len(self.halves) > 1 else []
        return summed(terms)

    def block_start(self, factor: int) -> str:
        """Return the expression for where a block starts along a factor."""
        number = [(self.blocks[factor], f"block.{FACTORS[factor]}")]
        terms = [self.start(factor), summed(number) if self.count(factor) > 1 else "0"]
        found = " + ".join(term for term in terms if term != "0") or "0"
        return hinted(found, self.tile(factor))

    def count(self, factor: int) -> int:
        """Return the number of blocks along a factor in the larger half of a part."""
        return -(-max(self.ends(factor)) // self.blocks[factor])

    def ends(self, factor: int) -> tuple[int, ...]:
        """Return where the halves of a part end along a factor: one end per direction along the
        factor that splits parts into halves, otherwise a single end."""
        return self.halves if factor == self.factor else (self.extents[factor],)

    def block_size(self, factor: int) -> str:
        """Return the expression for the size of a block along a factor, in whole memory tiles. The
        last block may be smaller."""
        tile, block = self.tile(factor), self.blocks[factor]
        ends = [round_up(end, tile) for end in self.ends(factor)]
        if all(end % block == 0 for end in ends):
            return str(block)
        if max(ends) < block:
            return hinted(by_way(ends), tile)
        before = f" - block.{FACTORS[factor]} * {block}" if self.count(factor) > 1 else ""
        return hinted(f"minimum({block}, {by_way(ends)}{before})", tile)

    def block(self, name: str, *lead: str) -> str:
        """Return the expression for a block in the array `name`; `lead`: the indices of its leading
        dimensions."""
        batch, *dims = DIMS[self.side]
        spans = [f"pl.ds({self.block_start(f)}, {self.block_size(f)})" for f in dims]
        first = self.block_start(batch)
        first = "np.int32(0)" if first == "0" else first  # JAX may make a Python 0 a 64-bit integer
        return f"{name}.at[{', '.join([*lead, first, *spans])}]"

    def place(self, name: str, slot: str) -> str:
        """Return the expression for the part of a VMEM slot that a block fills."""
        _, *dims = DIMS[self.side]
        sizes = [self.block_size(f) for f in dims]
        is_whole = sizes == [str(self.blocks[f]) for f in dims]
        spans = [] if is_whole else [f"pl.ds(0, {size})" for size in sizes]
        return f"{name}.at[{', '.join([slot, *spans])}]"

    def half(self, name: str, *lead: str) -> str:
        """Return the expression for the half that travels in direction `way`, in the array `name`
        of one part; `lead`: the indices of its leading dimensions."""
        tile = self.tile(self.factor)
        sizes = [round_up(half, tile) for half in self.halves]
        start = hinted(self.start(self.factor, way="way"), tile)
        span = f"pl.ds({start}, {hinted(by_way(sizes, 'way'), tile)})"
        dims = [span if f == self.factor else ":" for f in DIMS[self.side]]
        return f"{name}.at[{', '.join([*lead, *dims])}]"

    def half_bytes(self, way: int) -> int:
        """Return the bytes of the half that travels in a direction."""
        dims = zip(DIMS[self.side], self.shape, strict=True)
        extents = (
            round_up(self.halves[way], self.tile(f)) if f == self.factor else size
            for f, size in dims
        )
        return math.prod(extents) * self.itemsize


def summed(terms: list[tuple[int, str]]) -> str:
    """Return an expression for the sum of name * factor over (factor, name) pairs.

    >>> summed([(4, "part"), (1, "way")]), summed([(0, "part")])
    ('part * 4 + way', '0')
    """
    found = [name if by == 1 else f"{name} * {by}" for by, name in terms if by]
    return " + ".join(found) or "0"


def hinted(text: str, tile: int) -> str:
    """Return an index expression with a hint to the compiler that it is a multiple of `tile`."""
    return text if text.isdecimal() or tile == 1 else f"multiple({text}, {tile})"


def by_way(sizes: Sequence[int], way: str = "block.way") -> str:
    """Return an expression that selects the size for a direction of travel."""
    if len(set(sizes)) == 1:
        return str(sizes[0])
    return f"by_way({way}, {', '.join(map(str, sizes))})"
