"""Copies of listed rows between any memory blocks in one launch, for packing, for unpacking and for
many tensors."""

import ctypes
import itertools
import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from .boxes import ranges
from .torch_launch import Launch
from .torch_tensors import capturing, has_kernels, on, table
from .triton_rows import Block, copy_rows

# The number of rows of a block, and of bytes in each row.
ROWS, COLUMNS = 4, 2048


@triton.jit(do_not_specialize=["number"])
def copy_kernel(
    blocks,  # int64 [number, 3]: a block's entry, and its row and column of blocks
    entries,  # int64 [entries, 8]: the fields of `Entry`
    sources,  # int64: the addresses of memory that rows come from
    targets,  # int64: the addresses of memory that rows go to
    number,  # number of blocks
    INTEGER: tl.constexpr,  # type of the units if lines of 16 bytes cannot be moved
    UNITS: tl.constexpr,  # a `Block` of bytes, moved as INTEGER
    LINES: tl.constexpr,  # a `Block` of bytes, moved in lines of 16 bytes
):
    """Copy blocks of the rows of entries; each program loops over several blocks."""
    for place in range(tl.program_id(0), number, tl.num_programs(0)):
        block = blocks + 3 * place
        entry = entries + 8 * tl.load(block)
        row = tl.load(block + 1) * LINES.rows
        column = tl.load(block + 2) * LINES.columns * LINES.width
        read_row, write_row = tl.load(entry + 6), tl.load(entry + 7)
        read = tl.load(sources + tl.load(entry)) + tl.load(entry + 2)
        read += row * read_row + column
        write = tl.load(targets + tl.load(entry + 1)) + tl.load(entry + 3)
        write += row * write_row + column
        columns, rows = tl.load(entry + 4) - column, tl.load(entry + 5) - row
        first = tl.cast(0, tl.int64)
        if (read | write | read_row | write_row | columns) % 16 == 0:
            lines = tl.multiple_of(read.to(tl.pointer_type(tl.int64)), 16)
            into = tl.multiple_of(write.to(tl.pointer_type(tl.int64)), 16)
            copy_rows(lines, into, 0, 0, read_row, write_row, rows, columns, first, BLOCK=LINES)
        else:
            units = read.to(tl.pointer_type(INTEGER))
            to = write.to(tl.pointer_type(INTEGER))
            copy_rows(units, to, 0, 0, read_row, write_row, rows, columns, first, BLOCK=UNITS)


TYPES = {1: tl.uint8, 2: tl.int16, 4: tl.int32, 8: tl.int64}


class Entry(NamedTuple):
    """Rows to copy. `source`, `target`: the index of a memory block in `sources` and one in
    `targets`; `read`, `write`: the first byte in each block; `columns`: the bytes of a row; `rows`:
    the number of rows; `read_row`, `write_row`: the row stride in each block, in bytes."""

    source: int
    target: int
    read: int
    write: int
    columns: int
    rows: int
    read_row: int
    write_row: int


def entries_of(box, within, into, size, source, target, read=0, write=0):
    """Yield the entries that copy a box of elements of `size` bytes from memory block `source` to
    block `target`. The arrays there are contiguous, cover the boxes `within` and `into`, and begin
    at bytes `read` and `write`. A single row is cut into rows of COLUMNS bytes, so that its blocks
    are full."""
    # (extent, read stride, write stride) in bytes, minor to major; contiguous dimensions merged.
    groups = [(size, 1, 1)]
    read_stride = write_stride = size
    for (low, high), (from_low, from_high), (to_low, to_high) in zip(
        *(reversed([*ranges(each)]) for each in (box, within, into)), strict=True
    ):
        read += (low - from_low) * read_stride
        write += (low - to_low) * write_stride
        if high - low > 1:
            extent, *steps = groups[-1]
            if [read_stride, write_stride] == [extent * step for step in steps]:
                groups[-1] = (extent * (high - low), *steps)
            else:
                groups.append((high - low, read_stride, write_stride))
        read_stride *= from_high - from_low
        write_stride *= to_high - to_low
    columns = groups.pop(0)[0]
    rows, *apart = groups.pop(0) if groups else (1, 0, 0)
    for index in itertools.product(*(range(group[0]) for group in groups)):
        at = read + sum(k * group[1] for k, group in zip(index, groups, strict=True))
        to = write + sum(k * group[2] for k, group in zip(index, groups, strict=True))
        if rows > 1:
            yield Entry(source, target, at, to, columns, rows, *apart)
            continue
        whole = columns // COLUMNS * COLUMNS
        if whole:
            lengths = COLUMNS, columns // COLUMNS, COLUMNS, COLUMNS
            yield Entry(source, target, at, to, *lengths)
        if columns > whole:
            yield Entry(source, target, at + whole, to + whole, columns - whole, 1, 0, 0)


class Listed:
    """The tables of entries on a device, for launches of a kernel like `copy_kernel` on any of its
    streams."""

    def __init__(self, entries, device, kernel=copy_kernel):
        self.entries, self._kernel = tuple(entries), kernel
        self.divisor = math.gcd(*(n for e in self.entries for n in (*e[2:5], *e[6:])))
        if not self.entries:
            return
        if capturing(torch.device(device)):
            raise RuntimeError(
                "a first call cannot be captured in a CUDA graph: make one call before the capture"
            )
        table = torch.tensor(self.entries, dtype=torch.int64, device="cpu")
        across = -(-table[:, 4] // COLUMNS)
        counts = -(-table[:, 5] // ROWS) * across
        number = torch.arange(len(counts), device="cpu").repeat_interleave(counts)
        first = (counts.cumsum(0) - counts)[number]
        block, across = torch.arange(len(number), device="cpu") - first, across[number]
        blocks = number, block // across, block % across
        # These copies block the host, so that any stream may read the tables.
        self._entries = table.to(device)
        self._blocks = torch.stack(blocks, dim=1).to(device)
        self.number = len(number)

    def copy(self, sources, targets, programs=None):
        """Call the function that `copier` returns."""
        self.copier(tuple(sources), tuple(targets), programs)()

    def copier(self, sources, targets, programs=None):
        """Return a function that copies all entries between memory blocks at these addresses, in
        one launch of at most `programs` programs; it does nothing if there are no entries. On a CPU
        outside Triton's interpreter torch copies the same rows."""
        if not self.entries:
            return lambda: None
        if not has_kernels(self._entries, self._kernel):
            return lambda: self._copy_rows(sources, targets)
        given = constants(math.gcd(self.divisor, *sources, *targets)).values()
        device = self._entries.device
        tables = table(sources, device), table(targets, device)
        number = self.number if programs is None else min(programs, self.number)
        launch = Launch(self._kernel, number)

        def run():
            with on(device):
                launch(self._blocks, self._entries, *tables, self.number, *given)

        return run

    def _copy_rows(self, sources, targets):
        for entry in self.entries:
            held = _rows(sources[entry.source] + entry.read, entry.read_row, entry)
            _rows(targets[entry.target] + entry.write, entry.write_row, entry).copy_(held)


def _rows(address, apart, entry):
    """Return the rows of an entry in this process's memory as a tensor of bytes."""
    memory = (ctypes.c_uint8 * (apart * (entry.rows - 1) + entry.columns)).from_address(address)
    rows = torch.frombuffer(memory, dtype=torch.uint8)
    return rows.as_strided((entry.rows, entry.columns), (apart, 1))


def constants(divisor):
    """Return the constants of `copy_kernel`, given a divisor of all addresses and lengths."""
    unit = next(unit for unit in (8, 4, 2, 1) if divisor % unit == 0)
    units, lines = (
        Block(width, lanes, ROWS, COLUMNS // width, 1) for width, lanes in ((unit, 1), (8, 2))
    )
    return {"INTEGER": TYPES[unit], "UNITS": units, "LINES": lines}
