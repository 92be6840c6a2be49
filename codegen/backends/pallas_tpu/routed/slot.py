"""Slots of the forms that forward: how elements lie in one, and which part of it is sent."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

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
from shardwright.ir.algebra.index import Integers

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Slot:
    """`held`: the extents of what it holds, by dimension of the tensor; `order`: that of the
    dimensions in the slot, where they lie in it as they do in the tensor; `dense`: whether they lie
    row after row in granules of 512 bytes. `shape`: the slot's own. `sizes`: of each offset what is
    sent, from the start of the slot; none where all of it always is."""

    itemsize: int
    held: Shape
    order: View
    dense: bool
    shape: Shape
    sizes: tuple[Shape, ...]

    @staticmethod
    def every(held: Shape, itemsize: int, widths: Sequence[Shape] = ()) -> Iterator[Slot]:
        """Yield the slots that can hold what has these extents; `widths`: those that offsets take.

        XLA can be asked to put the rows of little one after another, and those of a vector.
        """
        if len(held) == 1 or math.prod(held) <= MAX_WINDOW:
            yield _dense(held, itemsize, widths)
        if len(held) > 1:
            yield _box(held, itemsize, widths)

    @staticmethod
    def viewed(held: Shape, itemsize: int, view: View) -> Slot:
        """Return what a shard is in the order of a view, without padding."""
        shape = tuple(held[axis] for axis in view)
        return _slot(held, itemsize, view, shape, (), dense=False)

    @property
    def turned(self) -> bool:
        """Whether the dimensions are in another order than the tensor's."""
        return not self.dense and self.order != tuple(range(len(self.order)))

    @property
    def sized(self) -> tuple[int, ...]:
        """The dimensions of the slot of which not all is always sent."""
        axes = range(len(self.shape))
        return tuple(a for a in axes if any(size[a] != self.shape[a] for size in self.sizes))

    @property
    def units(self) -> Shape:
        """What divides the sizes along each dimension, as the tiling of memory needs it."""
        return _units(len(self.shape), self.itemsize, self.dense)

    @property
    def elements(self) -> int:
        """How many elements of memory it takes."""
        return self._taken(self.shape)

    def sent(self, number: int, halves: tuple[int, ...] = WHOLE) -> int:
        """Return how many elements links carry of halves of what the offset of a number takes."""
        _, first = self.part(number, halves)
        return self._taken((first, *self.size(number)[1:]))

    def size(self, number: int) -> Shape:
        """Return the extents of what the offset of a number takes."""
        return self.sizes[number] if self.sizes else self.shape

    def part(self, number: int, halves: tuple[int, ...]) -> tuple[int, int]:
        """Return where halves of what an offset takes begin along the first dimension of a slot,
        and their extent."""
        whole, unit = self.size(number)[0], self.units[0]
        cut = round_up(-(-whole // 2), unit)
        return {WHOLE: (0, whole), (0,): (0, cut), (1,): (cut, whole - cut)}[halves]

    def is_cut(self, number: int) -> bool:
        """Return whether what an offset takes has two halves, of whole units."""
        whole, unit = self.size(number)[0], self.units[0]
        return whole > unit and whole % unit == 0

    def fits(self, numbers: Integers, widths: Integers) -> bool:
        """Return whether tiles [n] that go over the offsets of these numbers, of these extents
        [n, dims], lie in what is sent of a slot."""
        sizes = np.array(self.sizes or [self.shape])[numbers if self.sizes else 0 * numbers]
        if self.dense:
            inner = math.prod(self.held[1:])
            return bool((widths[:, 0] * inner <= sizes.prod(axis=1)).all())
        return bool((widths[:, self.order] <= sizes).all())

    def _taken(self, size: Shape) -> int:
        if self.dense:
            return math.prod(size)
        return padded_elements(size, tuple(range(len(size))), self.itemsize)


def _dense(held: Shape, itemsize: int, widths: Sequence[Shape]) -> Slot:
    packed = 4 // min(itemsize, 4)
    inner = math.prod(held[1:])
    granules = [-(-first * inner // (packed * LANES)) for first, *_ in (held, *widths)]
    shape, *sizes = ((count, packed, LANES) for count in granules)
    return _slot(held, itemsize, tuple(range(len(held))), shape, sizes, dense=True)


def _box(held: Shape, itemsize: int, widths: Sequence[Shape]) -> Slot:
    order = default_view(held, itemsize)
    shape, *sizes = (tuple(extents[axis] for axis in order) for extents in (held, *widths))
    units = _units(len(held), itemsize, dense=False)

    def whole(size: Shape) -> Shape:
        """Round up to whole units; where an extent of the slot has none, all of it is sent."""
        triples = zip(size, units, shape, strict=True)
        return tuple(all_ if all_ % unit else round_up(s, unit) for s, unit, all_ in triples)

    return _slot(held, itemsize, order, shape, [whole(size) for size in sizes], dense=False)


def _slot(
    held: Shape, itemsize: int, order: View, shape: Shape, sizes: Sequence[Shape], *, dense: bool
) -> Slot:
    kept = tuple(sizes) if any(size != shape for size in sizes) else ()
    return Slot(itemsize, held, order, dense, shape, kept)


def _units(rank: int, itemsize: int, dense: bool) -> Shape:
    if dense:
        return (1,) * rank
    return (*(1,) * (rank - 2), *tiling(itemsize, rank))
