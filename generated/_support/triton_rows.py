"""Copies of rows of contiguous elements for kernels of emitted modules.

A kernel passes the starts of rows in both shards, their length, number and strides, in elements;
`copy_rows` moves one `Block` per call. Tested with triton 3.7.1 and 3.9.0, and torch 2.13.0.
"""

import math
from typing import NamedTuple

import triton
import triton.language as tl

BOTH = "source", "target"  # the ends of a tile


class Block(NamedTuple):
    """The block that a program moves per iteration: `rows` rows of `columns` units; `column_blocks`
    blocks cover the longest row. A unit is an integer that holds `width` elements; `width` divides
    the starts, lengths and strides of rows. `lanes`: the number of units in 16 bytes if shards are
    known to be aligned to 16 bytes, else 1. `number`: the number of blocks, for kernels whose
    programs loop over them."""

    width: int
    lanes: int
    rows: int
    columns: int
    column_blocks: int
    number: int = 0


class Tiles(NamedTuple):
    """The tiles of a target shard, as a kernel moves them. `number`: the number of tiles; `width`,
    `lanes`, `rows`, `columns`: the fields of `Block` for shards aligned to 16 bytes; `largest`: the
    extents of the largest tile: rows second to last, elements of a row last; each index of earlier
    dimensions has its own blocks. `ends`: whether the first line of a row may begin before the row.
    `together`: the sides, "source" and "target", on which each tile is contiguous; empty if devices
    exchange nothing."""

    number: int
    width: int
    lanes: int
    rows: int
    columns: int
    largest: tuple[int, ...]
    ends: bool = False
    together: tuple[str, ...] = ()

    def block(self, start=None, times=1):
        """Return the kernel's `Block` for shards aligned to `start` elements, a power of two, by
        default to 16 bytes. `times`: a factor by which to enlarge the block."""
        whole = start is None or start >= self.width * self.lanes
        width, lanes = (self.width, self.lanes) if whole else (min(self.width, start), 1)
        *outer, most, longest = (1, *self.largest)
        rows, columns = self.rows, self.columns
        rows, columns = (rows * times, columns) if most > 1 else (rows, columns * times)
        units = -(-longest // width) + (self.lanes - 1 if self.ends else 0)
        across, down = -(-units // columns), -(-most // rows)
        return Block(
            width, lanes, rows, columns, across, self.number * math.prod(outer) * down * across
        )


@triton.jit
def shard_at(peers, position, out, BLOCK: tl.constexpr):
    """Return a pointer to the source shard at a position, in the units of `out`."""
    source = tl.load(peers + position).to(out.dtype)
    return tl.multiple_of(source, BLOCK.lanes * (out.dtype.element_ty.primitive_bitwidth // 8))


@triton.jit
def in_units(elements, block, BLOCK: tl.constexpr, DIVISOR: tl.constexpr):
    """Return a number of elements in units, with the integer type of `block`; the compiler may
    assume that the result is a multiple of DIVISOR."""
    return tl.multiple_of(tl.cast(elements // BLOCK.width, block.dtype), DIVISOR)


@triton.jit
def read_once(source, inside):
    """Load the units where `inside` is true, marked as the first to evict from the cache."""
    return tl.load(source, mask=inside, eviction_policy="evict_first")


@triton.jit
def move(source, target, inside):
    """Copy the units where `inside` is true. Stored units stay in the cache for the next reader."""
    tl.store(target, read_once(source, inside), mask=inside)


@triton.jit
def places_of(block, BLOCK: tl.constexpr):
    """Return the row numbers and column numbers of the units of a block."""
    row = block // BLOCK.column_blocks * BLOCK.rows + tl.arange(0, BLOCK.rows)[:, None]
    return row, block % BLOCK.column_blocks * BLOCK.columns + tl.arange(0, BLOCK.columns)[None, :]


@triton.jit
def rows_at(read, write, read_row, write_row, rows, columns, block, BLOCK: tl.constexpr):
    """Return the offsets of a block's units in both shards, and a mask of the units inside the
    rows. The arguments are those of `copy_rows`."""
    row, column = places_of(block, BLOCK)
    inside = (row < rows) & (column < in_units(columns, block, BLOCK, BLOCK.lanes))
    at = row * in_units(read_row, block, BLOCK, BLOCK.lanes) + column
    to = row * in_units(write_row, block, BLOCK, BLOCK.lanes) + column
    read = in_units(read, block, BLOCK, BLOCK.lanes)
    write = in_units(write, block, BLOCK, BLOCK.lanes)
    return read + at, write + to, inside


@triton.jit
def copy_rows(
    source, target, read, write, read_row, write_row, rows, columns, block, BLOCK: tl.constexpr
):
    """Copy one block of rows without a division per unit. The first row begins at `read` in the
    source and at `write` in the target, each next row `read_row` and `write_row` later; `rows`:
    the number of rows; `columns`: the number of elements of a row; `block`: the index of the
    block. Every argument but `rows` and `block` is a multiple of `BLOCK.lanes` units."""
    read, write, inside = rows_at(
        read, write, read_row, write_row, rows, columns, block, BLOCK=BLOCK
    )
    move(source + read, target + write, inside)
