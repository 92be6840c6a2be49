"""What a buffer of one device holds, in blocks: by a layout, or read off a loader's array.

A block is a range of the buffer along one dimension whose elements are of one tensor. The logical
index of an element is a base, plus for each dimension of the buffer what its place there adds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from shardwright.ir.arrays import Integers
from shardwright.ir.stored import Stored

PADDING = "padding"
UNKNOWN = "values that are no element"


@dataclass(frozen=True)
class HeldBlock:
    """Elements of one tensor, or none: `tensor` is then `PADDING` or `UNKNOWN`.

    `adds`: of each dimension of the buffer int64 [extent, rank], the first row 0.
    """

    start: int
    tensor: str
    base: tuple[int, ...] = ()
    adds: tuple[Integers, ...] = ()
    width: int = 0

    @property
    def stop(self) -> int:
        """Where the block ends along its dimension."""
        return self.start + self.width

    def sliced(self, dim: int, low: int, high: int) -> HeldBlock:
        """Return the part of a block in a range of the buffer."""
        if not self.adds:
            return replace(self, start=low, width=high - low)
        adds = list(self.adds)
        taken = adds[dim][low - self.start : high - self.start]
        adds[dim] = taken - taken[0]
        base = tuple(int(b) for b in np.asarray(self.base) + taken[0])
        return HeldBlock(low, self.tensor, base, tuple(adds), high - low)


def of_layout(stored: Stored, buffer: str, position: int) -> list[HeldBlock]:
    """Return the blocks of a buffer on a mesh position."""
    bound = stored.bound[buffer]
    found = []
    for part, start in zip(bound.parts, bound.starts(position), strict=False):
        box = part.box(position)
        if not box:
            return [HeldBlock(0, part.tensor, (), (), 1)]
        if any(low >= high for low, high in box):
            continue
        rank = len(stored.tensors[part.tensor])
        base, adds = np.zeros(rank, dtype=np.int64), []
        for dim, (low, high) in enumerate(box):
            added = np.zeros((high - low, rank), dtype=np.int64)
            for logical, values in part.along(dim, low, high).items():
                added[:, logical] = values
            base += added[0]
            adds.append(added - added[0])
        width = box[bound.dim][1] - box[bound.dim][0]
        found.append(HeldBlock(start, part.tensor, tuple(map(int, base)), tuple(adds), width))
    shape = bound.shape(position)
    return list(_padded(found, shape[bound.dim] if shape else 1))


def _padded(blocks: list[HeldBlock], extent: int) -> Iterator[HeldBlock]:
    """Yield blocks with padding between them."""
    end = 0
    for block in blocks:
        if block.start > end:
            yield HeldBlock(end, PADDING, width=block.start - end)
        yield block
        end = block.stop
    if end < extent:
        yield HeldBlock(end, PADDING, width=extent - end)


def numbered(
    shapes: Mapping[str, tuple[int, ...]], first: int = 1
) -> dict[str, npt.NDArray[np.float64]]:
    """Return tensors whose elements are numbered through, in float64."""
    found = {}
    for name, shape in shapes.items():
        size = math.prod(shape)
        found[name] = np.arange(first, first + size, dtype=np.float64).reshape(shape)
        first += size
    return found


def of_array(
    array: npt.NDArray[np.generic], shapes: Mapping[str, tuple[int, ...]], dim: int
) -> list[HeldBlock]:
    """Return the blocks of an array of numbers of elements, from 1 on; 0 is padding."""
    if array.ndim == 0:
        return [_row(array.reshape(1), shapes, 0, 0)]
    found: list[HeldBlock] = []
    for start in range(array.shape[dim]):
        row = _row(array.take([start], axis=dim), shapes, start, dim)
        last = found[-1] if found else None
        if last is not None and _goes_on(last, row, dim):
            found[-1] = _joined(last, row, dim)
        else:
            found.append(row)
    return found


def _row(
    row: npt.NDArray[np.generic], shapes: Mapping[str, tuple[int, ...]], start: int, dim: int
) -> HeldBlock:
    values = np.asarray(row, dtype=np.float64)
    if not values.any():
        return HeldBlock(start, PADDING, width=1)
    # Zeros at the ends are padding.
    values = values[tuple(slice(0, int(places.max()) + 1) for places in np.nonzero(values))]
    first = 1
    for name, shape in shapes.items():
        end = first + math.prod(shape)
        if ((values >= first) & (values < end) & (values == np.floor(values))).all():
            places = np.unravel_index((values - first).astype(np.int64), shape) if shape else ()
            return _separated(name, np.stack(places, -1) if places else None, start, values.ndim)
        first = end
    return HeldBlock(start, UNKNOWN, width=1)


def _separated(name: str, index: Integers | None, start: int, dims: int) -> HeldBlock:
    """Return a row whose index is a base plus what each dimension adds; unknown if it is not."""
    if index is None:
        return HeldBlock(start, name, (), (), 1)
    origin = index[(0,) * dims]
    adds = []
    total = np.broadcast_to(origin, index.shape)
    for dim in range(dims):
        line = index[tuple(slice(None) if dim == each else 0 for each in range(dims))] - origin
        sides = [1] * dims
        sides[dim] = -1
        total = total + line.reshape(*sides, index.shape[-1])
        adds.append(line)
    if not np.array_equal(total, index):
        return HeldBlock(start, UNKNOWN, width=1)
    return HeldBlock(start, name, tuple(map(int, origin)), tuple(adds), 1)


def _goes_on(last: HeldBlock, row: HeldBlock, dim: int) -> bool:
    """Return whether a row belongs to the block before it."""
    if last.tensor != row.tensor or len(last.adds) != len(row.adds):
        return False
    sides = (each for each in enumerate(zip(last.adds, row.adds, strict=True)) if each[0] != dim)
    return all(np.array_equal(a, b) for _, (a, b) in sides)


def _joined(last: HeldBlock, row: HeldBlock, dim: int) -> HeldBlock:
    if not last.adds:
        return replace(last, width=last.width + 1)
    adds = list(last.adds)
    step = np.asarray(row.base) - np.asarray(last.base)
    adds[dim] = np.concatenate([adds[dim], step[None]])
    return replace(last, adds=tuple(adds), width=last.width + 1)
