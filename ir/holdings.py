"""Count the elements of a logical tensor on each device without visiting each element.

Along one logical dimension, a part contains the elements whose factors lie in given ranges. These
ranges are a *pattern*. The patterns of all parts cut the dimension into *segments*; the segments
that lie in the same patterns form a *class*. A boolean array over the classes of all dimensions
then states which elements a device has. The size of this array does not depend on the size of the
tensor.
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
"""The factors of a dimension, major to minor: each is its weight, its size, and the low and high
end of its half-open range."""

Box: TypeAlias = tuple[Pattern, ...]
"""One pattern per logical dimension."""

Mask: TypeAlias = npt.NDArray[np.bool_]


def box_of(part: BoundPart, position: int, rank: int) -> Box | None:
    """Return the patterns of a part at a mesh position, for a tensor of rank `rank`, or None if the
    part is empty there."""
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
    """One dimension divided into segments, and the class of each segment."""

    ends: Integers  # the boundaries of the segments, from 0 to the extent
    classes: Integers  # the number of the class of each segment
    counts: Integers  # the number of elements in each class
    held: dict[Pattern, Mask]  # for each pattern, whether each class lies in it

    @staticmethod
    def of(extent: int, patterns: Iterable[Pattern]) -> DimClasses:
        """Return the segments and classes into which the patterns divide a dimension."""
        every = list(dict.fromkeys(patterns))
        cuts = [np.array([0, extent], dtype=np.int64), *map(_ends, every)]
        ends = np.unique(np.concatenate(cuts))
        starts, widths = ends[:-1], np.diff(ends)
        whole = np.ones(starts.shape, dtype=np.bool_)  # a row even without patterns
        member = np.stack([whole, *(_has(pattern, starts) for pattern in every)])
        columns, classes = np.unique(member, axis=1, return_inverse=True)
        counts = np.zeros(columns.shape[1], dtype=np.int64)
        np.add.at(counts, classes.reshape(-1), widths)
        return DimClasses(
            ends, classes.reshape(-1), counts, dict(zip(every, columns[1:], strict=True))
        )

    def ranges(self, chosen: Mask) -> list[tuple[int, int]]:
        """Return the elements of the chosen classes as maximal half-open ranges."""
        found: list[tuple[int, int]] = []
        for segment in np.flatnonzero(chosen[self.classes]):
            low, high = int(self.ends[segment]), int(self.ends[segment + 1])
            if found and found[-1][1] == low:
                low = found.pop()[0]
            found.append((low, high))
        return found


@dataclass(frozen=True)
class TensorClasses:
    """The classes of a logical tensor along each dimension."""

    dims: tuple[DimClasses, ...]

    @staticmethod
    def of(shape: tuple[int, ...], boxes: Iterable[Box]) -> TensorClasses:
        """Return the classes into which the boxes divide each dimension of a tensor."""
        every = list(boxes)
        dims = enumerate(shape)
        return TensorClasses(
            tuple(DimClasses.of(extent, (box[d] for box in every)) for d, extent in dims)
        )

    def mask(self, boxes: Iterable[Box]) -> Mask:
        """Return whether each product of classes lies in at least one of the boxes: [classes of
        dimension 0, classes of dimension 1, ...]."""
        found = np.zeros(tuple(dim.counts.size for dim in self.dims), dtype=np.bool_)
        for box in boxes:
            sides = [dim.held[pattern] for dim, pattern in zip(self.dims, box, strict=True)]
            found |= reduce(np.multiply.outer, sides, np.array(True))
        return found

    def elements(self, mask: Mask) -> int:
        """Return the total number of elements in the products of classes that the mask selects."""
        left = mask.astype(np.int64)
        for dim in reversed(self.dims):
            left = left @ dim.counts
        return int(left)


def _ends(pattern: Pattern) -> Integers:
    """Return the boundaries of the runs of consecutive elements in a pattern."""
    whole = [(weight, size) for weight, size, low, high in pattern if (low, high) != (0, size)]
    if not whole:
        return np.zeros(0, dtype=np.int64)
    # The factors minor to the last cut factor are whole, so a run contains all their values.
    last = whole[-1][0]
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
