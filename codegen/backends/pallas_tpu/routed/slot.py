"""The slots of forwarding forms, and how elements are laid out in them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from shardwright.codegen.backends.pallas_tpu.memory import (
    LANES,
    MAX_PACKED,
    View,
    default_view,
    padded_elements,
    round_up,
    tiling,
)
from shardwright.codegen.backends.pallas_tpu.routed.turns import WHOLE

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Slot:
    """The layout of a slot. `held`: the extents of its contents, by tensor dimension; `order`: the
    order of dimensions in the slot, unless it is dense; `dense`: whether the contents are flattened
    into granules of 512 bytes; `shape`: the shape of the slot. The whole slot is sent."""

    itemsize: int
    held: Shape
    order: View
    dense: bool
    shape: Shape

    @staticmethod
    def every(held: Shape, itemsize: int) -> Iterator[Slot]:
        """Yield the slots for contents of these extents: a dense slot for vectors and small tiles,
        whose rows XLA can pack, and for tensors a slot in XLA's default dimension order."""
        if len(held) == 1 or math.prod(held) <= MAX_PACKED:
            packed = 4 // min(itemsize, 4)
            granules = -(-math.prod(held) // (packed * LANES))
            order = tuple(range(len(held)))
            yield Slot(itemsize, held, order, dense=True, shape=(granules, packed, LANES))
        if len(held) > 1:
            yield Slot.viewed(held, itemsize, default_view(held, itemsize))

    @staticmethod
    def viewed(held: Shape, itemsize: int, view: View) -> Slot:
        """Return the slot for contents of these extents in the dimension order of a view."""
        shape = tuple(held[axis] for axis in view)
        return Slot(itemsize, held, view, dense=False, shape=shape)

    @property
    def turned(self) -> bool:
        """Whether the slot's dimension order differs from the tensor's."""
        return not self.dense and self.order != tuple(range(len(self.order)))

    @property
    def unit(self) -> int:
        """The extent of a memory tile along the slot's first dimension. Halves are cut at a
        multiple of it."""
        return 1 if self.dense or len(self.shape) > 2 else tiling(self.itemsize, len(self.shape))[0]

    @property
    def elements(self) -> int:
        """The number of elements of memory that the slot takes, including padding."""
        return self._taken(self.shape)

    def sent(self, halves: tuple[int, ...]) -> int:
        """Return the number of elements on a link when these halves are sent."""
        _, first = self.part(halves)
        return self._taken((first, *self.shape[1:]))

    def part(self, halves: tuple[int, ...]) -> tuple[int, int]:
        """Return the start and extent of these halves along the slot's first dimension."""
        whole = self.shape[0]
        cut = round_up(-(-whole // 2), self.unit)
        return {WHOLE: (0, whole), (0,): (0, cut), (1,): (cut, whole - cut)}[halves]

    @property
    def is_cut(self) -> bool:
        """Whether the slot can be cut into two halves of whole units."""
        return self.shape[0] > self.unit and self.shape[0] % self.unit == 0

    @property
    def holds(self) -> bool:
        if self.dense:
            return math.prod(self.held) <= math.prod(self.shape)
        return tuple(self.held[axis] for axis in self.order) == self.shape

    def _taken(self, size: Shape) -> int:
        if self.dense:
            return math.prod(size)
        return padded_elements(size, tuple(range(len(size))), self.itemsize)
