"""Copies of strided boxes of elements between memory blocks of one device, in one launch.

Tested with triton 3.7.1 and torch 2.13.0.
"""

import contextlib
import functools
import itertools
import math
import operator
from typing import NamedTuple

import torch
import triton
import triton.language as tl

BLOCK, PROGRAMS = 1024, 4096  # elements that a program copies at once; largest number of programs
INTEGERS = {1: tl.uint8, 2: tl.int16, 4: tl.int32, 8: tl.int64}
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@triton.jit
def copy_boxes(
    blocks,  # int64 [number, 3]: a block's box, and its first row and column in the box
    boxes,  # int64 [boxes, 8 + 3 * DEPTH]: an index into `sources` and one into `targets`, the
    # first element in each memory block, the number of rows and of columns, the step from one
    # column to the next in each block; then for each loop over rows, inner to outer, its
    # count and its two steps
    sources,  # int64: the addresses of memory blocks that elements come from
    targets,  # int64: the addresses of memory blocks that elements go to
    number,  # number of blocks
    INTEGER: tl.constexpr,  # the integer type that is moved
    DEPTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Copy blocks of ROWS by COLUMNS elements of strided boxes; each program loops over several
    blocks."""
    for place in range(tl.program_id(0), number, tl.num_programs(0)):
        box = boxes + (8 + 3 * DEPTH) * tl.load(blocks + 3 * place)
        row = tl.load(blocks + 3 * place + 1) + tl.arange(0, ROWS)
        column = tl.load(blocks + 3 * place + 2) + tl.arange(0, COLUMNS)
        inside = (row < tl.load(box + 4))[:, None] & (column < tl.load(box + 5))[None, :]
        source = tl.load(sources + tl.load(box)).to(tl.pointer_type(INTEGER)) + tl.load(box + 2)
        target = tl.load(targets + tl.load(box + 1)).to(tl.pointer_type(INTEGER)) + tl.load(box + 3)
        at, to = tl.full((ROWS,), 0, tl.int64), tl.full((ROWS,), 0, tl.int64)
        for loop in tl.static_range(DEPTH):
            times = tl.load(box + 8 + 3 * loop)
            at += row % times * tl.load(box + 9 + 3 * loop)
            to += row % times * tl.load(box + 10 + 3 * loop)
            row = row // times
        source += at[:, None] + (column * tl.load(box + 6))[None, :]
        target += to[:, None] + (column * tl.load(box + 7))[None, :]
        tl.store(target, tl.load(source, mask=inside), mask=inside)


class Box(NamedTuple):
    """Elements to copy. `source`, `target`: the index of a memory block in `sources` and one in
    `targets`; `read`, `write`: the first element in each block; `loops`: outer to inner, each a
    count, a step in the source and a step in the target."""

    source: int
    target: int
    read: int
    write: int
    loops: tuple


def dense(loops):
    """Return the step of each loop in a dense array of the elements of all loops."""
    times = [loop[0] for loop in loops]
    return [math.prod(times[n + 1 :]) for n in range(len(times))]


def copy(boxes, sources, targets, size):
    """Copy boxes of elements of `size` bytes between lists of tensors, possibly views; boxes have
    the steps of contiguous tensors of the same shapes."""
    if not boxes:
        return
    for end, tensors in enumerate((sources, targets)):
        if not all(x.is_contiguous() for x in tensors):
            pairs = [(box, tensors[box[end]]) for box in boxes]
            boxes = [each for box, x in pairs for each in strided(box, end, x.shape, x.stride())]
    home = targets[boxes[0].target].device
    if home.type == "cpu" and isinstance(copy_boxes, triton.JITFunction):
        for source, target, read, write, loops in boxes:
            times, *steps = zip(*loops, strict=True) if loops else ((), (), ())
            held = _elements(sources[source], size, times, steps[0], read)
            _elements(targets[target], size, times, steps[1], write).copy_(held)
        return
    addresses = [[x.data_ptr() for x in each] for each in (sources, targets)]
    wide = _width(boxes, size, math.gcd(*itertools.chain(*addresses)))
    blocks, table, *shape = _tables(tuple(boxes), wide // size, home)
    given = [_numbers(each, home) for each in addresses]
    on = torch.cuda.device(home) if home.type == "cuda" else contextlib.nullcontext()
    number = len(blocks)
    with on:
        copy_boxes[(min(number, PROGRAMS),)](blocks, table, *given, number, INTEGERS[wide], *shape)


def _elements(x, size, times, steps, first):
    """View, as integers of `size` bytes, the elements that nested loops with counts `times`
    visit, starting at element `first` of a tensor."""
    whole = x.view(BITS[size])
    return whole.as_strided(times, steps, whole.storage_offset() + first)


@functools.lru_cache(maxsize=4096)
def strided(box, end, shape, strides):
    """Return boxes of the same elements as a box, with the steps of a tensor of these strides at
    one end (0: source, 1: target). The given box has the steps of a contiguous tensor at that
    end."""
    dense = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
    steps = [box[2 + end], *(loop[1 + end] for loop in box.loops)]
    digits = [[step // d % n for d, n in zip(dense, shape, strict=True)] for step in steps]
    rounds = [1, *(loop[0] - 1 for loop in box.loops)]
    last = [sum(map(operator.mul, rounds, column)) for column in zip(*digits, strict=True)]
    if all(place < extent for place, extent in zip(last, shape, strict=True)):
        start, *steps = (sum(map(operator.mul, each, strides)) for each in digits)
        return (_moved(box, end, start, steps),)
    for number, (times, *pair) in enumerate(
        box.loops
    ):  # split a loop that continues in the next row
        for row in dense:
            inner = row // pair[end] if pair[end] and row % pair[end] == 0 else 1
            if 1 < inner < times and times % inner == 0:
                outer = times // inner, *(inner * step for step in pair)
                nest = *box.loops[:number], outer, (inner, *pair), *box.loops[number + 1 :]
                return strided(box._replace(loops=nest), end, shape, strides)
    (times, *pair), *rest = box.loops
    starts = ((box.read + n * pair[0], box.write + n * pair[1]) for n in range(times))
    parts = (Box(box.source, box.target, *start, tuple(rest)) for start in starts)
    return tuple(each for part in parts for each in strided(part, end, shape, strides))


def _moved(box, end, start, steps):
    """Replace the first element and the steps of a box at one end."""
    pairs = zip(box.loops, steps, strict=True)
    nest = tuple((n, step, to) if end == 0 else (n, at, step) for (n, at, to), step in pairs)
    return box._replace(loops=nest, **{("read", "write")[end]: start})


def _width(boxes, size, aligned):
    """Return the number of bytes to move as one integer: if rows are contiguous at both ends, the
    largest divisor, at most 8, of all addresses, offsets, row lengths and steps; else `size`."""
    most = math.gcd(aligned, 8)
    for _, _, read, write, loops in boxes:
        *outer, inner = loops or ((1, 1, 1),)
        if tuple(inner[1:]) != (1, 1):
            return size
        places = read, write, inner[0], *(step for loop in outer for step in loop[1:])
        most = math.gcd(most, size * math.gcd(*places))
    return most


@functools.lru_cache(maxsize=4096)
def _tables(boxes, unit, home):
    """Return the arguments of `copy_boxes` in units of `unit` elements: the tables of blocks and
    boxes, DEPTH, ROWS and COLUMNS."""
    depth = max(1, max(len(box[4]) for box in boxes) - 1)
    rows, sizes = [], []
    for source, target, read, write, loops in boxes:
        *outer, (columns, *steps) = loops or ((1, 1, 1),)
        scaled = [(times, at // unit, to // unit) for times, at, to in outer]
        nest = scaled[::-1] + [(1, 0, 0)] * (depth - len(scaled))
        sizes.append((math.prod(times for times, *_ in outer), columns // unit))
        ends = source, target, read // unit, write // unit
        rows.append([*ends, *sizes[-1], *steps, *itertools.chain(*nest)])
    widths = [BLOCK >> n for n in range(BLOCK.bit_length())]
    width = min(widths, key=lambda each: _blocks(sizes, each))
    blocks = [
        (number, row, column)
        for number, (down, across) in enumerate(sizes)
        for row in range(0, down, BLOCK // width)
        for column in range(0, across, width)
    ]
    return _numbers(blocks, home), _numbers(rows, home), depth, BLOCK // width, width


def _blocks(sizes, width):
    """Return the number of blocks of `width` columns that cover boxes of these (rows, columns)."""
    return sum(-(-down // (BLOCK // width)) * -(-across // width) for down, across in sizes)


def _numbers(listed, home):
    return torch.tensor(listed, dtype=torch.int64, device="cpu").to(home)
