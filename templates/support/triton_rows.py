"""Copies of rows of contiguous elements, for the kernels of emitted modules.

A kernel says in elements where rows begin in both shards, how long, how many and how far apart they
are. They are moved in units, integers of WIDTH elements, which divides all of these. LANES units
make 16 bytes where shards are known to begin at multiples of such, else it is 1. A block is ROWS
rows of COLUMNS units; COLUMN_BLOCKS of them lie side by side along the longest row.

Tested with triton 3.7.1 and 3.9.0, and torch 2.13.0.
"""

import triton
import triton.language as tl


@triton.jit
def shard_at(peers, position, out, LANES: tl.constexpr):
    """Return the source shard at a position, as units like those of `out`."""
    source = tl.load(peers + position).to(out.dtype)
    return tl.multiple_of(source, LANES * (out.dtype.element_ty.primitive_bitwidth // 8))


@triton.jit
def in_units(elements, block, WIDTH: tl.constexpr, DIVISOR: tl.constexpr):
    """Return elements as units, a multiple of DIVISOR, in as many bits as `block` has."""
    return tl.multiple_of(tl.cast(elements // WIDTH, block.dtype), DIVISOR)


@triton.jit
def move(source, target, inside):
    """Copy the units where `inside` holds."""
    tl.store(target, tl.load(source, mask=inside), mask=inside)


@triton.jit
def places_of(block, ROWS: tl.constexpr, COLUMNS: tl.constexpr, COLUMN_BLOCKS: tl.constexpr):
    """Return the rows and columns of a block, in units."""
    row = block // COLUMN_BLOCKS * ROWS + tl.arange(0, ROWS)[:, None]
    return row, block % COLUMN_BLOCKS * COLUMNS + tl.arange(0, COLUMNS)[None, :]


@triton.jit
def copy_rows(
    source,
    target,
    read,  # where the first row begins in the source,
    write,  # and in the target
    read_row,  # how far apart rows are in the source,
    write_row,  # and in the target
    rows,
    columns,  # elements of a row
    block,  # which block of the rows to copy
    WIDTH: tl.constexpr,
    LANES: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    COLUMN_BLOCKS: tl.constexpr,
):
    """Copy one block of rows: no division a unit. LANES divides all offsets and lengths."""
    row, column = places_of(block, ROWS, COLUMNS, COLUMN_BLOCKS)
    inside = (row < rows) & (column < in_units(columns, block, WIDTH, LANES))
    at = row * in_units(read_row, block, WIDTH, LANES) + column
    to = row * in_units(write_row, block, WIDTH, LANES) + column
    read = in_units(read, block, WIDTH, LANES)
    write = in_units(write, block, WIDTH, LANES)
    move(source + (read + at), target + (write + to), inside)


@triton.jit
def copy_some_lines(
    source,
    target,
    read,
    write,
    read_row,
    write_row,
    rows,
    columns,
    block,
    WIDTH: tl.constexpr,
    LANES: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    COLUMN_BLOCKS: tl.constexpr,
):
    """Copy one block of rows, in lines of 16 bytes where these lie alike in both shards."""
    row, column = places_of(block, ROWS, COLUMNS, COLUMN_BLOCKS)
    read = in_units(read, block, WIDTH, 1)
    write = in_units(write, block, WIDTH, 1)
    read_row = in_units(read_row, block, WIDTH, 1)
    write_row = in_units(write_row, block, WIDTH, 1)
    columns = in_units(columns, block, WIDTH, 1)
    if (read_row % LANES == 0) & (write_row % LANES == 0) & ((read - write) % LANES == 0):
        # Whole lines, then the ends of rows.
        skew = read % LANES
        end = skew + columns
        first = tl.cdiv(skew, LANES) * LANES
        last = tl.maximum(end // LANES * LANES, first)
        source += read // LANES * LANES
        target += write // LANES * LANES
        held = row * (read_row // LANES * LANES)
        wanted = row * (write_row // LANES * LANES)
        lines = (row < rows) & (column >= first) & (column < last)
        move(source + (held + column), target + (wanted + column), lines)
        if block % COLUMN_BLOCKS == 0:
            edge = tl.arange(0, LANES)[None, :]
            head = (row < rows) & (edge >= skew) & (edge < tl.minimum(first, end))
            move(source + (held + edge), target + (wanted + edge), head)
            tail = (row < rows) & (edge < end - last)
            edge += last
            move(source + (held + edge), target + (wanted + edge), tail)
    else:
        inside = (row < rows) & (column < columns)
        at = row * read_row + column
        to = row * write_row + column
        move(source + (read + at), target + (write + to), inside)
