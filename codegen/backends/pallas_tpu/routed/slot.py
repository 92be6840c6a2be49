"""Slots of the forms that forward: how elements lie in one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from shardwright.codegen.backends.pallas_tpu.direct import tiling
from shardwright.codegen.backends.pallas_tpu.memory import (
    LANES,
    View,
    default_view,
    padded_elements,
    round_up,
)
from shardwright.codegen.backends.pallas_tpu.routed.turns import WHOLE
from shardwright.codegen.backends.pallas_tpu.slots import MAX_WINDOW

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Slot:
    """`held`: the extents of what it holds, by dimension of the tensor; `order`: that of the
    dimensions in the slot, where they lie in it as they do in the tensor; `dense`: whether they lie
    row after row in granules of 512 bytes. `shape`: the slot's own, all of which is sent."""

    itemsize: int
    held: Shape
    order: View
    dense: bool
    shape: Shape

    @staticmethod
    def every(held: Shape, itemsize: int) -> Iterator[Slot]:
        """Yield the slots that can hold what has these extents.

        XLA can be asked to put the rows of little one after another, and those of a vector.
        """
        if len(held) == 1 or math.prod(held) <= MAX_WINDOW:
            packed = 4 // min(itemsize, 4)
            granules = -(-math.prod(held) // (packed * LANES))
            order = tuple(range(len(held)))
            yield Slot(itemsize, held, order, dense=True, shape=(granules, packed, LANES))
        if len(held) > 1:
            yield Slot.viewed(held, itemsize, default_view(held, itemsize))

    @staticmethod
    def viewed(held: Shape, itemsize: int, view: View) -> Slot:
        """Return a shard in the order of a view, without padding."""
        shape = tuple(held[axis] for axis in view)
        return Slot(itemsize, held, view, dense=False, shape=shape)

    @property
    def turned(self) -> bool:
        """Whether the dimensions are in another order than the tensor's."""
        return not self.dense and self.order != tuple(range(len(self.order)))

    @property
    def unit(self) -> int:
        """What divides the extent of a half along the first dimension, as memory is tiled."""
        return 1 if self.dense or len(self.shape) > 2 else tiling(self.itemsize, len(self.shape))[0]

    @property
    def elements(self) -> int:
        """How many elements of memory it takes."""
        return self._taken(self.shape)

    def sent(self, halves: tuple[int, ...]) -> int:
        """Return how many elements links carry of halves."""
        _, first = self.part(halves)
        return self._taken((first, *self.shape[1:]))

    def part(self, halves: tuple[int, ...]) -> tuple[int, int]:
        """Return where halves begin along the first dimension, and their extent."""
        whole = self.shape[0]
        cut = round_up(-(-whole // 2), self.unit)
        return {WHOLE: (0, whole), (0,): (0, cut), (1,): (cut, whole - cut)}[halves]

    @property
    def is_cut(self) -> bool:
        """Whether it has two halves, of whole units."""
        return self.shape[0] > self.unit and self.shape[0] % self.unit == 0

    @property
    def holds(self) -> bool:
        """Whether what it holds lies in it."""
        if self.dense:
            return math.prod(self.held) <= math.prod(self.shape)
        return tuple(self.held[axis] for axis in self.order) == self.shape

    def _taken(self, size: Shape) -> int:
        if self.dense:
            return math.prod(size)
        return padded_elements(size, tuple(range(len(size))), self.itemsize)
