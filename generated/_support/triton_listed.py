"""Copies of listed rows between any memories, in one launch: packing, unpacking, many tensors."""

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
from .triton_rows import move

# A program copies so many rows, and bytes of a row.
ROWS, COLUMNS = 4, 2048


@triton.jit
def copy_block(
    read,  # the addresses of the first row in the source,
    write,  # and in the target
    read_row,  # how far apart rows are there, and the length of a row, in bytes
    write_row,
    columns,
    rows,
    first_row,  # where the block begins: in rows, and in bytes of a row
    first_column,
    INTEGER: tl.constexpr,  # what is moved as one, and how many bytes it has
    UNIT: tl.constexpr,
    LINE: tl.constexpr,  # what divides all of these but `rows`, in bytes
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Copy a block of rows, by lines of LINE bytes; what is read is the first to leave caches."""
    source = tl.multiple_of(read.to(tl.pointer_type(INTEGER)), LINE)
    target = tl.multiple_of(write.to(tl.pointer_type(INTEGER)), LINE)
    row = first_row + tl.arange(0, ROWS)[:, None]
    column = first_column // UNIT + tl.arange(0, COLUMNS // UNIT)[None, :]
    inside = (row < rows) & (column < columns // LINE * (LINE // UNIT))
    at = row * (read_row // LINE * (LINE // UNIT)) + column
    to = row * (write_row // LINE * (LINE // UNIT)) + column
    move(source + at, target + to, inside)


@triton.jit(do_not_specialize=["number"])
def copy_kernel(
    blocks,  # int64 [number, 3]: the entry that a block is of, and its row and column of blocks
    entries,  # int64 [entries, 8]: the fields of `Entry`
    sources,  # int64: the addresses of memory that rows come from, and
    targets,  # that they go to
    number,  # how many blocks there are
    INTEGER: tl.constexpr,  # what is moved as one where 16 bytes cannot be, and its bytes
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Copy blocks of the rows of entries, program after program in turn."""
    for place in range(tl.program_id(0), number, tl.num_programs(0)):
        listed = blocks + 3 * place
        entry = entries + 8 * tl.load(listed)
        row, column = tl.load(listed + 1) * ROWS, tl.load(listed + 2) * COLUMNS
        read = tl.load(sources + tl.load(entry)) + tl.load(entry + 2)
        write = tl.load(targets + tl.load(entry + 1)) + tl.load(entry + 3)
        columns, rows = tl.load(entry + 4), tl.load(entry + 5)
        at, to = tl.load(entry + 6), tl.load(entry + 7)
        if (read | write | at | to | columns) % 16 == 0:
            copy_block(
                read, write, at, to, columns, rows, row, column, tl.int64, 8, 16, ROWS, COLUMNS
            )
        else:
            copy_block(
                read, write, at, to, columns, rows, row, column, INTEGER, UNIT, UNIT, ROWS, COLUMNS
            )


TYPES = {1: tl.uint8, 2: tl.int16, 4: tl.int32, 8: tl.int64}


class Entry(NamedTuple):
    """Rows to copy: the numbers of two memories, the rest in bytes (`rows` is their number)."""

    source: int
    target: int
    read: int
    write: int
    columns: int
    rows: int
    read_row: int
    write_row: int


def entries_of(box, within, into, size, source, target, read=0, write=0):
    """Yield the entries that copy a box of elements of `size` bytes between memories, in which
    contiguous arrays that cover the boxes `within` and `into` begin at the bytes `read` and
    `write`. A single row is cut into rows of COLUMNS bytes, so that its blocks are full."""
    # (extent, read stride, write stride) in bytes, minor to major, contiguous ones together.
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
    """Entries for one launch on a device, on any of its streams."""

    def __init__(self, entries, device):
        self.entries = tuple(entries)
        self.divisor = math.gcd(*(n for e in self.entries for n in (*e[2:5], *e[6:])))
        if not self.entries:
            return
        if capturing(torch.device(device)):
            raise RuntimeError("call this once before it is captured in a CUDA graph")
        table = torch.tensor(self.entries, dtype=torch.int64, device="cpu")
        across = -(-table[:, 4] // COLUMNS)
        counts = -(-table[:, 5] // ROWS) * across
        number = torch.arange(len(counts), device="cpu").repeat_interleave(counts)
        first = (counts.cumsum(0) - counts)[number]
        block, across = torch.arange(len(number), device="cpu") - first, across[number]
        blocks = number, block // across, block % across
        # These copies are over when they return, whichever stream reads them.
        self._entries = table.to(device)
        self._blocks = torch.stack(blocks, dim=1).to(device)
        self.number = len(number)

    def copy(self, sources, targets, programs=None):
        """Copy what `copier` says."""
        self.copier(tuple(sources), tuple(targets), programs)()

    def copier(self, sources, targets, programs=None):
        """Return a function that copies, in one launch, of so many programs at most, if there is
        anything, between memories at these addresses. On a CPU outside Triton's interpreter torch
        copies the same rows."""
        if not self.entries:
            return lambda: None
        if not has_kernels(self._entries, copy_kernel):
            return lambda: self._copy_rows(sources, targets)
        given = constants(math.gcd(self.divisor, *sources, *targets)).values()
        device = self._entries.device
        tables = table(sources, device), table(targets, device)
        number = self.number if programs is None else min(programs, self.number)
        launch = Launch(copy_kernel, number)

        def run():
            with on(device):
                launch(self._blocks, self._entries, *tables, self.number, *given)

        return run

    def _copy_rows(self, sources, targets):
        for entry in self.entries:
            held = _rows(sources[entry.source] + entry.read, entry.read_row, entry)
            _rows(targets[entry.target] + entry.write, entry.write_row, entry).copy_(held)


def _rows(address, apart, entry):
    """Return the rows of an entry, bytes of this process, as a tensor."""
    memory = (ctypes.c_uint8 * (apart * (entry.rows - 1) + entry.columns)).from_address(address)
    rows = torch.frombuffer(memory, dtype=torch.uint8)
    return rows.as_strided((entry.rows, entry.columns), (apart, 1))


def constants(divisor):
    """Return what the kernel is launched with where this divides all addresses and lengths."""
    unit = next(unit for unit in (8, 4, 2, 1) if divisor % unit == 0)
    return {"INTEGER": TYPES[unit], "UNIT": unit, "ROWS": ROWS, "COLUMNS": COLUMNS}
