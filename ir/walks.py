"""Walks: nested loops over the elements of a logical dimension, in several dense buffers at once.

A buffer stores a dimension as one or more factors, each with a step. A range of elements therefore
consists of runs, within which successive elements are at equal distances in every buffer. Equal
runs that are themselves at equal distances in every buffer become one loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np

from shardwright.ir.arrays import Integers

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Elements of a dimension, as half-open ranges in ascending order."""


class FactorView(NamedTuple):
    """A factor of a dimension as a buffer stores it.

    `weight`: the distance in the dimension between successive values of the factor. `size`: the
    number of its values. `low`: the first of its values that the buffer stores. `step`: the
    distance in the buffer between successive values.
    """

    weight: int
    size: int
    low: int
    step: int


View: TypeAlias = tuple[FactorView, ...]
"""The factors of a dimension that are larger than 1, as a buffer stores them, minor to major."""


class Nest(NamedTuple):
    """A loop: the number of its iterations, and the step of an iteration in each buffer."""

    times: int
    steps: tuple[int, ...]


class Walk(NamedTuple):
    """Elements in order: the offset of the first element in each buffer, and nested loops, outer to
    inner."""

    starts: tuple[int, ...]
    loops: tuple[Nest, ...] = ()


@lru_cache(maxsize=4096)
def walks_of(ranges: Ranges, views: tuple[View, ...]) -> tuple[Walk, ...]:
    """Return walks over the elements of the ranges, in buffers that store the dimension with these
    views."""
    lows, counts = _runs(ranges, views)
    starts = np.stack([_offsets(view, lows) for view in views])
    steps = tuple(view[0].step if view else 0 for view in views)
    inner = [(Nest(count, steps),) if count > 1 else () for count in counts.tolist()]
    walks = list(map(Walk, zip(*starts.tolist(), strict=True), inner))
    while True:
        joined = list(_joined(walks))
        if len(joined) == len(walks):
            return tuple(walks)
        walks = joined


def _runs(ranges: Ranges, views: tuple[View, ...]) -> tuple[Integers, Integers]:
    """Return two arrays: the first element and the length of each run. In a run of successive
    elements, only the minor-most factor of each buffer changes."""
    cuts = [np.array(ranges, dtype=np.int64).reshape(-1)]
    extent = ranges[-1][1]
    for view in views:
        if len(view) > 1:
            cuts.append(np.arange(0, extent, view[0].size))
    ends = np.unique(np.concatenate(cuts))
    lows, counts = ends[:-1], np.diff(ends)
    firsts = np.array([low for low, _ in ranges])
    lasts = np.array([high for _, high in ranges])
    place = np.searchsorted(firsts, lows, side="right") - 1
    inside = (place >= 0) & (lows < lasts[np.maximum(place, 0)])
    return lows[inside], counts[inside]


def _offsets(view: View, elements: Integers) -> Integers:
    offsets = np.zeros(elements.shape, dtype=np.int64)
    for factor in view:
        offsets += (elements // factor.weight % factor.size - factor.low) * factor.step
    return offsets


def _joined(walks: list[Walk]) -> Iterator[Walk]:
    """Yield the walks, with successive walks that have equal loops and equal distances merged."""
    place = 0
    while place < len(walks):
        first, end = walks[place], place + 1
        apart = _apart(walks, place)
        while apart is not None and _apart(walks, end - 1) == apart:
            end += 1
        count = end - place
        if apart is None or count == 1:
            yield first
        else:
            yield Walk(first.starts, (Nest(count, apart), *first.loops))
        place = end


def _apart(walks: list[Walk], place: int) -> tuple[int, ...] | None:
    """Return the distance in each buffer from walk `place` to the next walk. Return None if
    their loops differ, or if the next walk does not begin later in every buffer."""
    if place + 1 >= len(walks) or walks[place].loops != walks[place + 1].loops:
        return None
    pairs = zip(walks[place].starts, walks[place + 1].starts, strict=True)
    apart = tuple(after - before for before, after in pairs)
    return apart if min(apart) > 0 else None


def crossed(walks: list[tuple[Walk, ...]], bases: tuple[int, ...]) -> Iterator[Walk]:
    """Yield walks over a box, given the walks along each dimension. Loops are ordered by their step
    in the first buffer, largest first. `bases`: the offset in each buffer from which walks start.
    """
    if not walks:
        yield Walk(bases)
        return
    for walk in walks[0]:
        starts = tuple(base + start for base, start in zip(bases, walk.starts, strict=True))
        for rest in crossed(walks[1:], starts):
            yield Walk(rest.starts, _nested((*walk.loops, *rest.loops)))


def _nested(loops: tuple[Nest, ...]) -> tuple[Nest, ...]:
    """Return loops sorted by their step in the first buffer, largest first. Two successive loops
    become one if, in every buffer, the inner loop ends one step before the outer loop's next
    iteration."""
    found: list[Nest] = []
    for loop in sorted(loops, key=lambda loop: loop.steps[0], reverse=True):
        if found and found[-1].steps == tuple(loop.times * step for step in loop.steps):
            loop = Nest(found.pop().times * loop.times, loop.steps)
        found.append(loop)
    return tuple(found)
