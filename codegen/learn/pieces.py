"""Check a layout on every element that a loader stores, in bounded memory.

In each pass, the value of an element is one digit of its code. The digits that a layout expects in
a buffer are computed from the logical indices and compared a few rows at a time, so no pass is kept
in memory.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from shardwright.codegen.learn.logical import Floats, LogicalTensor
from shardwright.codegen.learn.probe import Codes, Load, run_loader
from shardwright.ir.parts import BoundBuffer
from shardwright.ir.stored import Stored

Rows: TypeAlias = npt.NDArray[np.bool_]

PIECE = 2**20
"""The number of elements compared at a time."""

Place = tuple[slice, ...]


def first_difference(
    load: Load, tensors: Mapping[str, LogicalTensor], stored: Stored, dtype: str
) -> str | None:
    """Describe the first buffer and device for which a loader's output differs from a layout;
    None if there is no difference."""
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
                if _odd_rows(array, bound, position, dim, line, starts).any():
                    return f"{name} of rank {device}"
                rest = _digest(array, [place for _, place in _boxes(bound, position)])
                if padding.setdefault(name, rest) != rest:
                    return f"the padding of {name} of rank {device}"
    return None


def differences(
    load: Load, tensors: Mapping[str, LogicalTensor], stored: Stored, dtype: str
) -> Iterator[tuple[str, str]]:
    """Yield the name of each buffer that a loader stores differently from a layout, with the
    differing rows on the first device that has any. Ignore buffers without a layout."""
    codes = Codes.of(tensors, dtype)
    left = dict(stored.bound)
    for position, device in enumerate(stored.mesh.device_ids):
        odd: dict[str, Rows] = {}
        padding: dict[str, int] = {}
        for dim, line, values in codes.passes_along():
            held = run_loader(load, tensors, device, values)
            for name, bound in left.items():
                if name not in held:  # the rank stores no elements of these tensors
                    continue
                array = held[name].reshape(bound.shape(position))
                rows = _odd_rows(array, bound, position, dim, line, codes.starts[dim])
                rest = _digest(array, [place for _, place in _boxes(bound, position)])
                if padding.setdefault(name, rest) != rest:
                    rows[:] = True
                odd[name] = odd.get(name, rows) | rows
        for name, rows in odd.items():
            if rows.any():
                del left[name]
                at = np.flatnonzero(rows)
                yield name, f"rows {at[0]} to {at[-1] + 1} of rank {device}"


def _boxes(bound: BoundBuffer, position: int) -> Iterator[tuple[int, Place]]:
    """Yield the index of each part that has elements at a mesh position, with the part's slices of
    the buffer."""
    starts = bound.starts(position)
    for number, (part, start) in enumerate(zip(bound.parts, starts, strict=False)):
        box = part.box(position)
        if all(low < high for low, high in box):
            place = [slice(0, high - low) for low, high in box]
            if place:
                place[bound.dim] = slice(start, start + box[bound.dim][1] - box[bound.dim][0])
            yield number, tuple(place)


def _odd_rows(
    array: Floats,
    bound: BoundBuffer,
    position: int,
    dim: int,
    line: Floats,
    starts: Mapping[str, int],
) -> Rows:
    """Return, for each row of a buffer, whether any value differs from the expected digit of its
    element along a logical dimension."""
    found: Rows = np.zeros(array.shape[:1] or (1,), dtype=np.bool_)
    for number, place in _boxes(bound, position):
        part = bound.parts[number]
        box, held = part.box(position), array[place]
        indices = list(part.indices(box)) if box else []
        index = indices[dim] if dim < len(indices) else np.zeros((1,) * held.ndim, np.int64)
        wanted = np.broadcast_to(line[starts[part.tensor] + index], held.shape)
        odd = found[place[0]] if place else found
        for rows in _pieces(held.shape):
            differ = held[rows] != wanted[rows]
            odd[rows or slice(None)] |= differ.reshape(len(differ) if rows else 1, -1).any(axis=1)
    return found


def _pieces(shape: Sequence[int]) -> Iterator[Place]:
    """Yield slices of the rows of an array, of about PIECE elements each."""
    if not shape:
        yield ()
        return
    rows = max(1, PIECE // max(1, int(np.prod(shape[1:], dtype=np.int64))))
    for low, high in itertools.pairwise([*range(0, shape[0], rows), shape[0]]):
        yield (slice(low, high),)


def _digest(array: Floats, covered: Sequence[Place]) -> int:
    found = 0
    if sum(array[place].size for place in covered) == array.size:
        return found
    outside: npt.NDArray[np.bool_] = np.ones(array.shape, dtype=np.bool_)
    for place in covered:
        outside[place] = False
    for rows in _pieces(array.shape):
        found = zlib.crc32(array[rows][outside[rows]].tobytes(), found)
    return found
