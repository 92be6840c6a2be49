"""A sharding compared with the target: shared, excess and missing digits of each dimension.

    shared   the major-most digits of a dimension that equal the target's
    excess   its digits after these, which must leave
    missing  the target's digits after these, which must arrive

`Arrangements` are the shardings worth a permute: every dimension starts with digits of the target
and ends with digits that other dimensions miss, so that one all-to-all moves them there. In between
are digits that the target does not use, which are gathered last.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from shardwright.codegen.planner.basis.digits import (
    Digits,
    divisors,
    merged,
    minus,
    parts_of,
    primes,
)

# Most arrangements tried for each number of parts per dimension.
MOST_ARRANGED = 96


@dataclass(frozen=True)
class Alignment:
    """One dimension compared with the target's."""

    shared: Digits
    excess: Digits
    missing: Digits


@functools.cache
def aligned(held: Digits, wanted: Digits) -> Alignment:
    """Compare a dimension's digits with the target's, major to minor.

    >>> aligned(((4, 2), (1, 2)), ((2, 4),))
    Alignment(shared=((4, 2),), excess=((1, 2),), missing=((2, 2),))
    """
    left, right, shared = list(held), list(wanted), []
    while left and right:
        (low, count), (other, others) = left[0], right[0]
        top, cut = low * count, math.lcm(low, other)
        if top != other * others or cut == top:
            break
        shared.append((cut, top // cut))
        left[:1] = [(low, cut // low)] if cut > low else []
        right[:1] = [(other, cut // other)] if cut > other else []
    return Alignment(tuple(shared), tuple(left), tuple(right))


def major_parts(digits: Digits, count: int) -> tuple[Digits, Digits, int]:
    """Return the major-most digits that split into the largest divisor of `count` reachable digit
    by digit; the digits after them; and the remaining factor of `count`.

    >>> major_parts(((4, 6), (1, 2)), 4)
    (((12, 2),), ((4, 3), (1, 2)), 2)
    """
    taken: list[tuple[int, int]] = []
    for number, (stride, size) in enumerate(digits):
        part = math.gcd(size, count)
        if part > 1:
            taken.append((stride * size // part, part))
            count //= part
        if part < size:
            rest = ((stride, size // part), *digits[number + 1 :])
            return tuple(taken), rest, count
    return tuple(taken), (), count


@dataclass(frozen=True)
class Vacancy:
    """The open part of a dimension: the number of parts still to fill after the target's digits."""

    head: Digits
    count: int


@dataclass(frozen=True)
class Arrangements:
    """Shardings with this many parts per dimension that start with digits of the target.

    `runs`: ways for slots to take the digits that other dimensions miss, by slot and missing
    dimension. `filled`: the same ways, completed with unused digits regardless of the previous
    sharding.
    """

    slots: tuple[Vacancy, ...]
    runs: tuple[tuple[tuple[Digits, ...], ...], ...]
    filled: tuple[tuple[Digits, ...], ...]

    @staticmethod
    def of(wanted: tuple[Digits, ...], parts: tuple[int, ...], free: Digits) -> Arrangements:
        """Return the arrangements nearest to the target. `wanted`: its digits; `free`: the usable
        digits."""
        cut = [major_parts(digits, count) for digits, count in zip(wanted, parts, strict=True)]
        slots = tuple(Vacancy(head, count) for head, _, count in cut)
        every = _runs(slots, tuple(rest for _, rest, _ in cut))
        runs = tuple(itertools.islice(every, MOST_ARRANGED))
        filled = (_filled(slots, run, free, low) for run in runs for low in (False, True))
        return Arrangements(slots, runs, tuple(dims for dims in filled if dims is not None))

    def dims(self, held: tuple[Digits, ...] | None, free: Digits) -> Iterator[tuple[Digits, ...]]:
        """Yield the digits of every dimension, each sharding once. `held`: the previous digits,
        which move only if necessary; `free`: previously unused digits."""
        found = dict.fromkeys(self.filled)
        for run in self.runs if held is not None else ():
            dims = _swapped(self.slots, run, (*(held or ()), free))
            if dims is not None:
                found[dims] = None
        yield from found


def _runs(
    slots: tuple[Vacancy, ...], missing: tuple[Digits, ...]
) -> Iterator[tuple[tuple[Digits, ...], ...]]:
    """Yield the ways to assign missing digits to slots of other dimensions, as many as fit."""

    def fill(dim: int, lacking: tuple[Digits, ...]) -> Iterator[tuple[tuple[Digits, ...], ...]]:
        if dim == len(slots):
            yield ()
            return
        for own, left in _of_slot(dim, slots[dim].count, lacking):
            for rest in fill(dim + 1, left):
                yield (own, *rest)

    return fill(0, missing)


def _of_slot(
    dim: int, count: int, lacking: tuple[Digits, ...]
) -> Iterator[tuple[tuple[Digits, ...], tuple[Digits, ...]]]:
    """Yield one slot's share of each dimension's missing digits, and the digits then still
    missing."""

    def take(other: int, count: int) -> Iterator[tuple[tuple[Digits, ...], tuple[Digits, ...]]]:
        if other == len(lacking):
            yield (), ()
            return
        most = 1 if other == dim else math.gcd(count, parts_of(lacking[other]))
        for size in reversed(divisors(most)):
            run, rest, left = major_parts(lacking[other], size)
            if left == 1:
                for runs, rests in take(other + 1, count // size):
                    yield (run, *runs), (rest, *rests)

    return take(0, count)


def _filled(
    slots: tuple[Vacancy, ...], runs: tuple[tuple[Digits, ...], ...], left: Digits, low_first: bool
) -> tuple[Digits, ...] | None:
    """Return the digits of every dimension after filling the slots with unused digits (`left`), low
    or high strides first; None if these do not fit."""
    for slot, own in zip(slots, runs, strict=True):
        left = minus(left, (*slot.head, *itertools.chain.from_iterable(own)))
    dims = []
    for slot, own in zip(slots, runs, strict=True):
        count = slot.count // math.prod(map(parts_of, own))
        filling: list[tuple[int, int]] = []
        for stride, size in sorted(left, reverse=not low_first):
            part = math.gcd(size, count)
            if part > 1:
                filling.append((stride if low_first else stride * size // part, part))
                count //= part
        if count > 1:
            return None
        left = minus(left, tuple(filling))
        dims.append(merged((*slot.head, *filling, *itertools.chain.from_iterable(own))))
    return tuple(dims)


def _swapped(
    slots: tuple[Vacancy, ...], runs: tuple[tuple[Digits, ...], ...], rows: tuple[Digits, ...]
) -> tuple[Digits, ...] | None:
    """Exchange as few prime digits as possible, and return the dimensions' previous digits, then
    the free ones, so that the target's digits come first and the digits that other dimensions miss
    come last. None if the digits belong to different dimensions and differ in size."""
    before = [list(primes_of(row)) for row in rows]
    for number, (slot, own) in enumerate(zip(slots, runs, strict=True)):
        head = primes_of(slot.head)
        last = primes_of(tuple(itertools.chain.from_iterable(own)))
        row = before[number]
        if len(head) + len(last) > len(row):
            return None
        places = [*range(len(head)), *range(len(row) - len(last), len(row))]
        for place, digit in zip(places, (*head, *last), strict=True):
            found = next(((r, r.index(digit)) for r in before if digit in r), None)
            if found is None:
                return None
            other, at = found
            if row[place][1] == digit[1]:
                other[at], row[place] = row[place], digit
            elif other is row:
                row.insert(place, row.pop(at))
            else:
                return None
    return tuple(merged(tuple(row)) for row in before[:-1])


@functools.cache
def primes_of(digits: Digits) -> Digits:
    """Return digits cut into prime factors, major to minor, small factors last."""
    found: list[tuple[int, int]] = []
    for stride, size in reversed(digits):
        for factor in primes(size):
            found.append((stride, factor))
            stride *= factor
    return tuple(reversed(found))
