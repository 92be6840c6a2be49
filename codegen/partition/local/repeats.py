"""Repetitions in a list of ops: consecutive stretches that differ only in the names of their
values, such as the layers of a model."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

SHORTEST = 8
"""The fewest items in a repeated stretch."""


@dataclass(frozen=True)
class Item:
    """One op: a key that interchangeable ops share, and the numbers of its operands and results.

    `owners`: the owners of these values, such as the weights of a layer. A stretch is chosen so
    that each copy has few owners.
    """

    key: Hashable
    operands: tuple[int, ...]
    results: tuple[int, ...]
    owners: frozenset[Hashable] = frozenset()


@dataclass(frozen=True)
class Repeat:
    """Consecutive copies of a stretch of `period` items. `start`: the first item of the first
    copy."""

    start: int
    period: int
    copies: int

    @property
    def stop(self) -> int:
        """The index after the last copy."""
        return self.start + self.period * self.copies

    def places(self, offset: int) -> range:
        """Return the indices of the item at `offset` in every copy."""
        return range(self.start + offset, self.stop, self.period)


@dataclass(frozen=True)
class _Stretch:
    """Items `start` to `stop`, in which each key equals the key one period later."""

    start: int
    stop: int
    period: int

    @property
    def copies(self) -> int:
        return (self.stop - self.start) // self.period

    def free(self, taken: np.ndarray) -> Iterator[_Stretch]:
        """Yield the parts of a stretch that contain no taken item and have room for at least two
        copies."""
        places = np.flatnonzero(taken[self.start : self.stop]) + self.start
        borders = [self.start - 1, *map(int, places), self.stop]
        for low, high in itertools.pairwise(borders):
            left = _Stretch(low + 1, high, self.period)
            if left.copies > 1:
                yield left


def repeats(items: Sequence[Item], fewest: int = 2) -> tuple[Repeat, ...]:
    """Return disjoint stretches that repeat at least `fewest` times, in order. Stretches that save
    the most items are chosen first."""
    found: list[Repeat] = []
    shape = _Shape(items)
    taken = np.zeros(len(items), bool)

    def saved(stretch: _Stretch) -> tuple[int, int]:
        return (1 - stretch.copies) * stretch.period, stretch.period

    for candidate in sorted(shape.candidates(), key=saved):
        for stretch in candidate.free(taken):
            for each in shape.exact(shape.begun(stretch)):
                if each.copies >= fewest:
                    found.append(each)
                    taken[each.start : each.stop] = True
    return tuple(sorted(found, key=lambda each: each.start))


class _Shape:
    """The keys of items as numbers, and the item that produces each value."""

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        known: dict[Hashable, int] = {}
        self.codes = np.array([known.setdefault(item.key, len(known)) for item in items], int)
        self.made = {
            value: (place, number)
            for place, item in enumerate(items)
            for number, value in enumerate(item.results)
        }

    def candidates(self) -> Iterator[_Stretch]:
        codes = self.codes
        for period in range(SHORTEST, len(codes) // 2 + 1):
            breaks = np.flatnonzero(codes[:-period] != codes[period:])
            edges = np.concatenate(([-1], breaks, [len(codes) - period]))
            for run in np.flatnonzero(np.diff(edges) > period):
                yield _Stretch(int(edges[run]) + 1, int(edges[run + 1]) + period, period)

    def begun(self, stretch: _Stretch) -> Repeat:
        """Return the copies of a stretch with the best possible start: the one for which the fewest
        values pass from one copy to the next and the copies have the fewest owners, in sum."""
        slack = (stretch.stop - stretch.start) % stretch.period
        rated = zip(self._passing(stretch), self._owners(stretch, slack + 1), strict=False)
        rates = [passing + owners for passing, owners in rated]
        return Repeat(stretch.start + rates.index(min(rates)), stretch.period, stretch.copies)

    def _passing(self, stretch: _Stretch) -> list[int]:
        """Return, for each possible start, the number of values that pass from the first copy to
        the next."""
        start, period = stretch.start, stretch.period
        last = {
            self.made[value]: place
            for place in range(start, min(start + 3 * period, stretch.stop))
            for value in self.items[place].operands
            if self.made.get(value, (-1, 0))[0] >= start
        }
        crossing = np.zeros(3 * period + 2, int)
        for (maker, _), place in last.items():
            crossing[maker - start + 1] += 1
            crossing[place - start + 1] -= 1
        return [int(count) for count in np.cumsum(crossing)[period : 2 * period]]

    def _owners(self, stretch: _Stretch, begins: int) -> list[int]:
        """Return, for each of the first `begins` starts, the number of owners of the first copy
        plus that of the second."""
        counts = []
        for copy in range(2):
            start = stretch.start + copy * stretch.period
            window = Counter(
                owner
                for item in self.items[start : start + stretch.period]
                for owner in item.owners
            )
            found = []
            for place in range(start, start + begins):
                found.append(len(window))
                if place + stretch.period < len(self.items):
                    window.update(self.items[place + stretch.period].owners)
                window.subtract(self.items[place].owners)
                window = +window
            counts.append(found)
        return [sum(each) for each in zip(*counts, strict=True)]

    def exact(self, repeat: Repeat) -> Iterator[Repeat]:
        """Yield the runs of copies in which operands come from corresponding items too."""
        starts = range(repeat.start, repeat.stop, repeat.period)
        for _, equal in itertools.groupby(starts, lambda s: self._links(s, repeat.period)):
            own = list(equal)
            if len(own) > 1:
                yield Repeat(own[0], repeat.period, len(own))

    def _links(self, start: int, period: int) -> tuple[tuple[int, int], ...]:
        """Return, for each operand in a copy, the item and the result that produce it, or the
        number of a value from outside."""
        outside: dict[int, int] = {}
        links = []
        for item in self.items[start : start + period]:
            for value in item.operands:
                place, number = self.made.get(value, (-1, 0))
                if start <= place < start + period:
                    links.append((place - start, number))
                else:
                    links.append((-1, outside.setdefault(value, len(outside))))
        return tuple(links)
