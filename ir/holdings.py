"""The elements of a logical tensor on each device, counted without walking them.

Along each logical dimension, a part has the elements whose factors lie in ranges: a *pattern*. The
patterns of all parts cut the dimension into *segments*; segments in the same patterns form a
*class*. The elements of a device are then a union of products of classes: a boolean array whose
size does not depend on the size of the tensor.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from shardwright.ir.arrays import Integers
from shardwright.ir.parts import BoundPart

Pattern: TypeAlias = tuple[tuple[int, int, int, int], ...]
"""Factors of a dimension, major to minor: weight, size and the half-open range that is held."""

Box: TypeAlias = tuple[Pattern, ...]
"""One pattern per logical dimension."""

Mask: TypeAlias = npt.NDArray[np.bool_]


def box_of(part: BoundPart, position: int, rank: int) -> Box | None:
    """Return the part of the tensor at a mesh position, or None if it is empty."""
    found: list[list[tuple[int, int, int, int]]] = [[] for _ in range(rank)]
    for group, (low, high) in zip(part.axes, part.box(position), strict=True):
        if low >= high:
            return None
        for axis in group:
            ends = (low, high) if len(group) == 1 else (0, axis.size)
            found[axis.dim].append((axis.weight, axis.size, *ends))
    return tuple(tuple(sorted(each, reverse=True)) for each in found)


@dataclass(frozen=True)
class DimClasses:
    """One dimension in segments, and segments in classes."""

    ends: Integers  # ends of the segments, from 0 to the extent
    classes: Integers  # class of each segment
    counts: Integers  # number of elements in each class
    held: dict[Pattern, Mask]  # by class

    @staticmethod
    def of(extent: int, patterns: Iterable[Pattern]) -> DimClasses:
        """Return a dimension cut by some patterns."""
        every = list(dict.fromkeys(patterns))
        cuts = [np.array([0, extent], dtype=np.int64), *map(_ends, every)]
        ends = np.unique(np.concatenate(cuts))
        starts, widths = ends[:-1], np.diff(ends)
        whole = np.ones(starts.shape, dtype=np.bool_)  # one row if there is no pattern
        member = np.stack([whole, *(_has(pattern, starts) for pattern in every)])
        columns, classes = np.unique(member, axis=1, return_inverse=True)
        counts = np.zeros(columns.shape[1], dtype=np.int64)
        np.add.at(counts, classes.reshape(-1), widths)
        return DimClasses(
            ends, classes.reshape(-1), counts, dict(zip(every, columns[1:], strict=True))
        )

    def ranges(self, chosen: Mask) -> list[tuple[int, int]]:
        """Return the elements of some classes as maximal ranges."""
        found: list[tuple[int, int]] = []
        for segment in np.flatnonzero(chosen[self.classes]):
            low, high = int(self.ends[segment]), int(self.ends[segment + 1])
            if found and found[-1][1] == low:
                low = found.pop()[0]
            found.append((low, high))
        return found


@dataclass(frozen=True)
class TensorClasses:
    """A logical tensor in classes along each dimension."""

    dims: tuple[DimClasses, ...]

    @staticmethod
    def of(shape: tuple[int, ...], boxes: Iterable[Box]) -> TensorClasses:
        """Return a tensor cut by some boxes."""
        every = list(boxes)
        dims = enumerate(shape)
        return TensorClasses(
            tuple(DimClasses.of(extent, (box[d] for box in every)) for d, extent in dims)
        )

    def mask(self, boxes: Iterable[Box]) -> Mask:
        """Return the classes that lie in any of the boxes."""
        found = np.zeros(tuple(dim.counts.size for dim in self.dims), dtype=np.bool_)
        for box in boxes:
            sides = [dim.held[pattern] for dim, pattern in zip(self.dims, box, strict=True)]
            found |= reduce(np.multiply.outer, sides, np.array(True))
        return found

    def elements(self, mask: Mask) -> int:
        """Return the number of elements in some classes."""
        left = mask.astype(np.int64)
        for dim in reversed(self.dims):
            left = left @ dim.counts
        return int(left)


def _ends(pattern: Pattern) -> Integers:
    """Return the ends of a pattern's runs."""
    whole = [(weight, size) for weight, size, low, high in pattern if (low, high) != (0, size)]
    if not whole:
        return np.zeros(0, dtype=np.int64)
    last = whole[-1][0]  # factors after the last cut one are whole, so runs span them
    starts = np.zeros(1, dtype=np.int64)
    for weight, _, low, high in pattern:
        if weight > last:
            starts = np.add.outer(starts, np.arange(low, high) * weight).reshape(-1)
        elif weight == last:
            return np.concatenate([starts + low * weight, starts + high * weight])
    return starts


def _has(pattern: Pattern, elements: Integers) -> Mask:
    found = np.ones(elements.shape, dtype=np.bool_)
    for weight, size, low, high in pattern:
        digit = elements // weight % size
        found &= (digit >= low) & (digit < high)
    return found
