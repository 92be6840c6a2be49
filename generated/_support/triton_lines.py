"""Copies of rows that may start or end inside lines of 16 bytes."""

import triton
import triton.language as tl

from .triton_rows import in_units, move, places_of


@triton.jit
def copy_some_lines(
    source, target, read, write, read_row, write_row, rows, columns, block, BLOCK: tl.constexpr
):
    """Copy one block of rows like `copy_rows`, in lines of 16 bytes if rows have the same alignment
    in both shards. The starts, lengths and strides of rows are multiples of a unit, not of a
    line."""
    row, column = places_of(block, BLOCK)
    read = in_units(read, block, BLOCK, 1)
    write = in_units(write, block, BLOCK, 1)
    read_row = in_units(read_row, block, BLOCK, 1)
    write_row = in_units(write_row, block, BLOCK, 1)
    columns = in_units(columns, block, BLOCK, 1)
    lanes: tl.constexpr = BLOCK.lanes
    if (read_row % lanes == 0) & (write_row % lanes == 0) & ((read - write) % lanes == 0):
        # whole lines, then the ends of rows
        skew = read % lanes
        end = skew + columns
        first = tl.cdiv(skew, lanes) * lanes
        last = tl.maximum(end // lanes * lanes, first)
        source += read // lanes * lanes
        target += write // lanes * lanes
        held = row * (read_row // lanes * lanes)
        wanted = row * (write_row // lanes * lanes)
        lines = (row < rows) & (column >= first) & (column < last)
        move(source + (held + column), target + (wanted + column), lines)
        if block % BLOCK.column_blocks == 0:
            edge = tl.arange(0, lanes)[None, :]
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
