"""Copies of strided boxes of elements between memories of one device, in one launch.

Tested with triton 3.7.1 and torch 2.13.0.
"""

import contextlib
import functools
import itertools
import math

import torch
import triton
import triton.language as tl

BLOCK, PROGRAMS = 1024, 4096  # elements that a program copies at once, and most programs
INTEGERS = {1: tl.uint8, 2: tl.int16, 4: tl.int32, 8: tl.int64}
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@triton.jit
def copy_boxes(
    blocks,  # int64 [number, 2]: the box that a block is of, and its first element there
    boxes,  # int64 [boxes, 5 + 3 * DEPTH]: the numbers of two memories, the first element in each,
    # how many there are, then loops, inner to outer: how often each goes round, and its two steps
    sources,  # int64: the addresses of memory that elements come from, and
    targets,  # that they go to
    number,  # how many blocks there are
    INTEGER: tl.constexpr,  # what is moved as one
    DEPTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Copy blocks of strided boxes, program after program in turn."""
    for place in range(tl.program_id(0), number, tl.num_programs(0)):
        box = boxes + (5 + 3 * DEPTH) * tl.load(blocks + 2 * place)
        element = tl.load(blocks + 2 * place + 1) + tl.arange(0, BLOCK)
        inside = element < tl.load(box + 4)
        source = tl.load(sources + tl.load(box)).to(tl.pointer_type(INTEGER)) + tl.load(box + 2)
        target = tl.load(targets + tl.load(box + 1)).to(tl.pointer_type(INTEGER)) + tl.load(box + 3)
        at, to = tl.full((BLOCK,), 0, tl.int64), tl.full((BLOCK,), 0, tl.int64)
        for loop in tl.static_range(DEPTH):
            times = tl.load(box + 5 + 3 * loop)
            at += element % times * tl.load(box + 6 + 3 * loop)
            to += element % times * tl.load(box + 7 + 3 * loop)
            element = element // times
        tl.store(target + to, tl.load(source + at, mask=inside), mask=inside)


def copy(boxes, sources, targets, size):
    """Copy boxes, tuples as `Box` is, of elements of `size` bytes between lists of contiguous
    tensors."""
    if not boxes:
        return
    home = targets[boxes[0][1]].device
    if home.type == "cpu" and isinstance(copy_boxes, triton.JITFunction):
        for source, target, read, write, loops in boxes:
            times, *steps = zip(*loops, strict=True) if loops else ((), (), ())
            held, into = line(sources[source], size), line(targets[target], size)
            held = held.as_strided(times, steps[0], held.storage_offset() + read)
            into.as_strided(times, steps[1], into.storage_offset() + write).copy_(held)
        return
    addresses = [[x.data_ptr() for x in each] for each in (sources, targets)]
    wide = _width(boxes, size, math.gcd(*itertools.chain(*addresses)))
    blocks, table, depth = _tables(boxes, wide // size, home)
    given = [_numbers(each, home) for each in addresses]
    on = torch.cuda.device(home) if home.type == "cuda" else contextlib.nullcontext()
    number = len(blocks)
    with on:
        copy_boxes[(min(number, PROGRAMS),)](
            blocks, table, *given, number, INTEGERS[wide], depth, BLOCK
        )


def line(x, size):
    """Return a contiguous tensor as a line of integers of `size` bytes."""
    return x.view(-1).view(BITS[size])


def _width(boxes, size, aligned):
    """Return how many bytes may be moved as one, 8 at most: what divides all places and steps of
    rows that are contiguous at both ends."""
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
    """Return blocks and boxes as a kernel takes them, so many elements as one, and how many loops
    each has."""
    depth = max(len(box[4]) for box in boxes)
    rows, blocks = [], []
    for number, (source, target, read, write, loops) in enumerate(boxes):
        *outer, inner = loops or ((1, 1, 1),)
        inner = inner[0] // unit, *inner[1:]
        scaled = [(times, at // unit, to // unit) for times, at, to in outer]
        nest = [inner, *scaled[::-1]]
        nest += [(1, 0, 0)] * (max(depth, 1) - len(nest))
        count = math.prod(times for times, *_ in nest)
        rows.append([source, target, read // unit, write // unit, count, *itertools.chain(*nest)])
        blocks += [(number, first) for first in range(0, count, BLOCK)]
    return _numbers(blocks, home), _numbers(rows, home), max(depth, 1)


def _numbers(listed, home):
    return torch.tensor(listed, dtype=torch.int64, device="cpu").to(home)
