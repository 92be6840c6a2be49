"""Does a loader store what a layout says, on every element, in bounded memory?

Each pass gives every element one digit of its code. What a layout expects in a buffer is written
down from the digits of its indices, and compared in pieces of rows: nothing is kept of a pass.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from shardwright.codegen.learn.probe import Codes, Floats, Load, LogicalTensor, run_loader
from shardwright.ir.parts import BoundBuffer
from shardwright.ir.stored import Stored

PIECE = 2**20
"""Elements that are compared at a time."""

Place = tuple[slice, ...]


def first_difference(
    load: Load, tensors: Mapping[str, LogicalTensor], stored: Stored, dtype: str
) -> str | None:
    """Return the first device and buffer in which a loader stores something else than a layout;
    None if there is none."""
    codes = Codes.of(tensors, dtype)
    for position, device in enumerate(stored.mesh.device_ids):
        padding: dict[str, int] = {}
        for dim, line, values in codes.passes_along():
            held = run_loader(load, tensors, device, values)
            if {*held} != {*stored.buffers}:
                return f"rank {device} has buffers {', '.join(held)}"
            for name, bound in stored.bound.items():
                shape = bound.shape(position)
                if held[name].size != np.prod(shape, dtype=np.int64):
                    return f"{name} of rank {device} has shape {held[name].shape}"
                array = held[name].reshape(shape)
                starts = codes.starts[dim]
                if not _same(array, bound, position, dim, line, starts):
                    return f"{name} of rank {device}"
                rest = _digest(array, [place for _, place in _boxes(bound, position)])
                if padding.setdefault(name, rest) != rest:
                    return f"the padding of {name} of rank {device}"
    return None


def _boxes(bound: BoundBuffer, position: int) -> Iterator[tuple[int, Place]]:
    """Yield the parts that a position has something of, by number, and where they lie."""
    starts = bound.starts(position)
    for number, (part, start) in enumerate(zip(bound.parts, starts, strict=False)):
        box = part.box(position)
        if all(low < high for low, high in box):
            place = [slice(0, high - low) for low, high in box]
            if place:
                place[bound.dim] = slice(start, start + box[bound.dim][1] - box[bound.dim][0])
            yield number, tuple(place)


def _same(
    array: Floats,
    bound: BoundBuffer,
    position: int,
    dim: int,
    line: Floats,
    starts: Mapping[str, int],
) -> bool:
    """Return whether the parts of a buffer have the digits of their elements along a dimension."""
    for number, place in _boxes(bound, position):
        part = bound.parts[number]
        box, held = part.box(position), array[place]
        indices = list(part.indices(box)) if box else []
        index = indices[dim] if dim < len(indices) else np.zeros((1,) * held.ndim, np.int64)
        wanted = np.broadcast_to(line[starts[part.tensor] + index], held.shape)
        if any((held[rows] != wanted[rows]).any() for rows in _pieces(held.shape)):
            return False
    return True


def _pieces(shape: Sequence[int]) -> Iterator[Place]:
    """Yield the rows of an array, some at a time."""
    if not shape:
        yield ()
        return
    rows = max(1, PIECE // max(1, int(np.prod(shape[1:], dtype=np.int64))))
    for low, high in itertools.pairwise([*range(0, shape[0], rows), shape[0]]):
        yield (slice(low, high),)


def _digest(array: Floats, covered: Sequence[Place]) -> int:
    """Return a digest of the values that are of no part."""
    found = 0
    if sum(array[place].size for place in covered) == array.size:
        return found
    outside: npt.NDArray[np.bool_] = np.ones(array.shape, dtype=np.bool_)
    for place in covered:
        outside[place] = False
    for rows in _pieces(array.shape):
        found = zlib.crc32(array[rows][outside[rows]].tobytes(), found)
    return found
