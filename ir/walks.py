"""Walks: the offsets of a logical dimension's elements in several dense buffers, as nested loops.

A buffer stores a dimension as one or several factors, each with a step. In every buffer, a range of
elements then consists of runs of equal steps. Runs at equal distances in all buffers form one loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np

from shardwright.ir.arrays import Integers

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Elements of a dimension as ascending half-open ranges."""


class FactorView(NamedTuple):
    """A factor of a dimension in a buffer: `low` is its first value there, `step` the distance in
    the buffer between successive values."""

    weight: int
    size: int
    low: int
    step: int


View: TypeAlias = tuple[FactorView, ...]
"""How a buffer stores a dimension: its factors of size above 1, minor first."""


class Nest(NamedTuple):
    """A loop: its iteration count, and its step in each buffer."""

    times: int
    steps: tuple[int, ...]


class Walk(NamedTuple):
    """Elements in order: the offset of the first one in each buffer, and loops, outer to inner."""

    starts: tuple[int, ...]
    loops: tuple[Nest, ...] = ()


@lru_cache(maxsize=4096)
def walks_of(ranges: Ranges, views: tuple[View, ...]) -> tuple[Walk, ...]:
    """Return the elements of some ranges as walks over buffers with these views."""
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
    """Return the first element and length of runs not interrupted by a minor factor."""
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
    """Yield walks, merging equal ones at equal distances into a loop."""
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
    """Return the distance from a walk to the next one, or None unless that is equal and later in
    every buffer."""
    if place + 1 >= len(walks) or walks[place].loops != walks[place + 1].loops:
        return None
    pairs = zip(walks[place].starts, walks[place + 1].starts, strict=True)
    apart = tuple(after - before for before, after in pairs)
    return apart if min(apart) > 0 else None


def crossed(walks: list[tuple[Walk, ...]], bases: tuple[int, ...]) -> Iterator[Walk]:
    """Yield the walks over a box, given the walks along each of its dimensions; `bases`: the offset
    of the first element in each buffer. Loops are outer to inner in the first buffer."""
    if not walks:
        yield Walk(bases)
        return
    for walk in walks[0]:
        starts = tuple(base + start for base, start in zip(bases, walk.starts, strict=True))
        for rest in crossed(walks[1:], starts):
            yield Walk(rest.starts, _nested((*walk.loops, *rest.loops)))


def _nested(loops: tuple[Nest, ...]) -> tuple[Nest, ...]:
    """Return loops sorted by their step in the first buffer. A loop is merged with the loop inside
    it if it continues where that one ends, in every buffer."""
    found: list[Nest] = []
    for loop in sorted(loops, key=lambda loop: loop.steps[0], reverse=True):
        if found and found[-1].steps == tuple(loop.times * step for step in loop.steps):
            loop = Nest(found.pop().times * loop.times, loop.steps)
        found.append(loop)
    return tuple(found)
