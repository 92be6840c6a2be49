"""Gathers and all-to-alls of several dimensions as one collective each.

The moved parts are stacked along a first dimension, in the order of devices: before and after the
collective, dimensions are reshaped and transposed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Turning:
    """An array is reshaped to `split`, transposed by `order`, and reshaped to `shape`."""

    split: Shape
    order: Shape
    shape: Shape


@dataclass(frozen=True)
class AtOnce:
    """The turns around a collective: `before` makes one block for each device, `after` assembles
    the received blocks. A gather needs only `after`."""

    before: Turning
    after: Turning

    @staticmethod
    def of(
        shape: Sequence[int],
        counts: Sequence[int],
        gained: Sequence[Sequence[int]],
        lost: Sequence[Sequence[int]],
    ) -> AtOnce:
        """Return the turns around a collective of shards of this shape.

        `counts`: the number of parts of each digit that moves, in the order of devices. `gained`,
        `lost`: for each dimension, the numbers of the digits that split it afterwards and those
        that split it before, major to minor.

        >>> found = AtOnce.of((4, 6), (2,), ((0,), ()), ((), (0,)))
        >>> found.before
        Turning(split=(2, 2, 6), order=(0, 1, 2), shape=(2, 2, 6))
        >>> found.after
        Turning(split=(2, 2, 6), order=(1, 0, 2), shape=(2, 12))
        """
        split, fronts, inner = list[int](), [0] * len(counts), list[int]()
        for extent, digits in zip(shape, gained, strict=True):
            for digit in digits:
                fronts[digit] = len(split)
                split.append(counts[digit])
            inner.append(extent // math.prod(counts[digit] for digit in digits))
            split.append(inner[-1])
        rest = (place for place in range(len(split)) if place not in fronts)
        back = (each for dim, digits in enumerate(lost) for each in (*digits, len(counts) + dim))
        pairs = zip(inner, lost, strict=True)
        joined = (extent * math.prod(counts[digit] for digit in digits) for extent, digits in pairs)
        return AtOnce(
            Turning(tuple(split), (*fronts, *rest), (math.prod(counts), *inner)),
            Turning((*counts, *inner), tuple(back), tuple(joined)),
        )
