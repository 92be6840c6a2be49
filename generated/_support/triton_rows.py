"""Copies of rows of contiguous elements, for the kernels of emitted modules.

A kernel says in elements where rows begin in both shards, how long, how many and how far apart they
are; they are moved a `Block` at a time. Tested with triton 3.7.1 and 3.9.0, and torch 2.13.0.
"""

import math
from typing import NamedTuple

import triton
import triton.language as tl

BOTH = "source", "target"  # ends of a tile


class Block(NamedTuple):
    """What a program copies at a time, `rows` rows of `columns` units, of which `column_blocks` lie
    side by side along the longest row. A unit is an integer of `width` elements, which divides
    where rows begin, how long and how far apart they are. `lanes` units make 16 bytes where shards
    are known to begin at multiples of such, else it is 1. `number`: how many blocks there are in
    all, for kernels whose programs go through them."""

    width: int
    lanes: int
    rows: int
    columns: int
    column_blocks: int
    number: int = 0


class Tiles(NamedTuple):
    """How a kernel moves the tiles of a target shard: how many there are, and the fields of `Block`
    for shards that begin at multiples of 16 bytes. `largest`: the extents of the largest tile, its
    rows last but one, the elements of a row last; those before them are indices that each take a
    block. `ends`: whether the first line of a row may begin before it. `together`: of "source" and
    "target" those in whose shards the bytes of each tile are together, none where a device has
    nothing to exchange."""

    number: int
    width: int
    lanes: int
    rows: int
    columns: int
    largest: tuple[int, ...]
    ends: bool = False
    together: tuple[str, ...] = ()

    def block(self, start=None, times=1):
        """Return the kernel's `Block` for shards that begin at multiples of so many elements, a
        power of two, by default of 16 bytes; so many times as large as by default."""
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
    """Return the source shard at a position, as units like those of `out`."""
    source = tl.load(peers + position).to(out.dtype)
    return tl.multiple_of(source, BLOCK.lanes * (out.dtype.element_ty.primitive_bitwidth // 8))


@triton.jit
def in_units(elements, block, BLOCK: tl.constexpr, DIVISOR: tl.constexpr):
    """Return elements as units, a multiple of DIVISOR, in as many bits as `block` has."""
    return tl.multiple_of(tl.cast(elements // BLOCK.width, block.dtype), DIVISOR)


@triton.jit
def read_once(source, inside):
    """Return what is where `inside` holds, which is the first to leave the caches."""
    return tl.load(source, mask=inside, eviction_policy="evict_first")


@triton.jit
def move(source, target, inside):
    """Copy the units where `inside` holds. What is stored, whatever comes next reads: it stays."""
    tl.store(target, read_once(source, inside), mask=inside)


@triton.jit
def places_of(block, BLOCK: tl.constexpr):
    """Return the rows and columns of a block, in units."""
    row = block // BLOCK.column_blocks * BLOCK.rows + tl.arange(0, BLOCK.rows)[:, None]
    return row, block % BLOCK.column_blocks * BLOCK.columns + tl.arange(0, BLOCK.columns)[None, :]


@triton.jit
def rows_at(read, write, read_row, write_row, rows, columns, block, BLOCK: tl.constexpr):
    """Return where the units of a block of rows are in both shards, and which are inside; all as
    `copy_rows` takes it."""
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
    """Copy one block of rows: no division a unit. The first begins at `read` in the source and at
    `write` in the target, the next `read_row` and `write_row` after it; `columns`: elements of a
    row; `block`: which one. `BLOCK.lanes` units divide all of these but `rows` and `block`."""
    read, write, inside = rows_at(
        read, write, read_row, write_row, rows, columns, block, BLOCK=BLOCK
    )
    move(source + read, target + write, inside)
