"""Where a list of ops repeats: stretches that stand several times in a row, equal but for the names
of what they take and make, as the layers of a model do."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

SHORTEST = 8
"""Fewest items of a stretch that is worth a name."""


@dataclass(frozen=True)
class Item:
    """One op: all that two of them must have alike, and the values it takes and makes.

    `owners`: what these belong to, as the weights of one layer; a copy best has few of them.
    """

    key: Hashable
    operands: tuple[int, ...]
    results: tuple[int, ...]
    owners: frozenset[Hashable] = frozenset()


@dataclass(frozen=True)
class Repeat:
    """So many copies of a stretch, one after another."""

    start: int
    period: int
    copies: int

    @property
    def stop(self) -> int:
        """The end of the last copy."""
        return self.start + self.period * self.copies

    def places(self, offset: int) -> range:
        """Return the places of one item of the stretch in all copies."""
        return range(self.start + offset, self.stop, self.period)


@dataclass(frozen=True)
class _Stretch:
    """From `start` to `stop` keys are equal to those a period later."""

    start: int
    stop: int
    period: int

    @property
    def copies(self) -> int:
        return (self.stop - self.start) // self.period

    def free(self, taken: np.ndarray) -> Iterator[_Stretch]:
        """Yield what is left where items are taken."""
        places = np.flatnonzero(taken[self.start : self.stop]) + self.start
        borders = [self.start - 1, *map(int, places), self.stop]
        for low, high in itertools.pairwise(borders):
            left = _Stretch(low + 1, high, self.period)
            if left.copies > 1:
                yield left


def repeats(items: Sequence[Item], fewest: int = 2) -> tuple[Repeat, ...]:
    """Return stretches that are repeated at least `fewest` times, in order; what saves most is
    taken first, and no two overlap."""
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
    """The keys of items as numbers, and who makes what."""

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
        """Yield where keys repeat, for every period."""
        codes = self.codes
        for period in range(SHORTEST, len(codes) // 2 + 1):
            breaks = np.flatnonzero(codes[:-period] != codes[period:])
            edges = np.concatenate(([-1], breaks, [len(codes) - period]))
            for run in np.flatnonzero(np.diff(edges) > period):
                yield _Stretch(int(edges[run]) + 1, int(edges[run + 1]) + period, period)

    def begun(self, stretch: _Stretch) -> Repeat:
        """Return the copies of a stretch, begun where the fewest values pass from one to the next
        and a copy has the fewest owners."""
        slack = (stretch.stop - stretch.start) % stretch.period
        rated = zip(self._passing(stretch), self._owners(stretch, slack + 1), strict=False)
        rates = [passing + owners for passing, owners in rated]
        return Repeat(stretch.start + rates.index(min(rates)), stretch.period, stretch.copies)

    def _passing(self, stretch: _Stretch) -> list[int]:
        """Return how many values pass the end of the first copy, for each begin of it."""
        start, period = stretch.start, stretch.period
        crossing = np.zeros(3 * period + 2, int)
        for place in range(start, min(start + 3 * period, stretch.stop)):
            for maker in {self.made.get(v, (-1, 0))[0] for v in self.items[place].operands}:
                if maker >= start:
                    crossing[maker - start + 1] += 1
                    crossing[place - start + 1] -= 1
        return [int(count) for count in np.cumsum(crossing)[period : 2 * period]]

    def _owners(self, stretch: _Stretch, begins: int) -> list[int]:
        """Return how many owners the first two copies have, each by itself, for this many
        begins."""
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
        """Yield the copies in a row that are equal in what they take from themselves as well."""
        starts = range(repeat.start, repeat.stop, repeat.period)
        for _, equal in itertools.groupby(starts, lambda s: self._links(s, repeat.period)):
            own = list(equal)
            if len(own) > 1:
                yield Repeat(own[0], repeat.period, len(own))

    def _links(self, start: int, period: int) -> tuple[tuple[int, int], ...]:
        """Return for each operand of a copy where in it that is made, or which of the values from
        outside it is."""
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
