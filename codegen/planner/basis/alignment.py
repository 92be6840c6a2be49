"""A sharding compared with the target: per dimension, shared, excess and missing digits.

    shared   the major-most digits of a dimension that are those of the target
    excess   its digits after these: they have to go
    missing  the target's digits after these: they have to come

`Arrangements` are the shardings worth a permute: every dimension begins with digits of the target,
and ends with those that other dimensions miss, so that one all-to-all takes them there; between
stand digits that the target does not have, to be gathered last.
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

# Arrangements of one number of parts a dimension that are looked at.
MOST_ARRANGED = 96


@dataclass(frozen=True)
class Alignment:
    """One dimension beside the target's."""

    shared: Digits
    excess: Digits
    missing: Digits


@functools.cache
def aligned(held: Digits, wanted: Digits) -> Alignment:
    """Return what a dimension's digits share with the target's, major to minor.

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
    """Return the major-most digits that split into a divisor of `count`, as large as goes digit by
    digit; the digits after them; and what is left of `count`.

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
    """What is still to be filled of a dimension: a number of parts after the target's digits."""

    head: Digits
    count: int


@dataclass(frozen=True)
class Arrangements:
    """Shardings of this many parts a dimension that begin with digits of the target.

    `runs`: ways in which slots take what others miss, by slot and by the dimension that misses it.
    `filled`: with these, and with the digits that nobody has, whatever was there before.
    """

    slots: tuple[Vacancy, ...]
    runs: tuple[tuple[tuple[Digits, ...], ...], ...]
    filled: tuple[tuple[Digits, ...], ...]

    @staticmethod
    def of(wanted: tuple[Digits, ...], parts: tuple[int, ...], free: Digits) -> Arrangements:
        """Return those nearest to the target; `wanted`: its digits, `free`: those that may be used
        at all."""
        cut = [major_parts(digits, count) for digits, count in zip(wanted, parts, strict=True)]
        slots = tuple(Vacancy(head, count) for head, _, count in cut)
        every = _runs(slots, tuple(rest for _, rest, _ in cut))
        runs = tuple(itertools.islice(every, MOST_ARRANGED))
        filled = (_filled(slots, run, free, low) for run in runs for low in (False, True))
        return Arrangements(slots, runs, tuple(dims for dims in filled if dims is not None))

    def dims(self, held: tuple[Digits, ...] | None, free: Digits) -> Iterator[tuple[Digits, ...]]:
        """Yield the digits of every dimension, each sharding once; `held`: the digits before, which
        change places where they have to and stay where they may; `free`: those unused before."""
        found = dict.fromkeys(self.filled)
        for run in self.runs if held is not None else ():
            dims = _swapped(self.slots, run, (*(held or ()), free))
            if dims is not None:
                found[dims] = None
        yield from found


def _runs(
    slots: tuple[Vacancy, ...], missing: tuple[Digits, ...]
) -> Iterator[tuple[tuple[Digits, ...], ...]]:
    """Yield for every slot what it takes of the digits that each dimension misses, as much as
    goes first."""

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
    """Yield what one slot takes of each dimension's missing digits, and what these miss then."""

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
    """Return the dimensions with what their slots lack made of digits that nobody has, those of low
    or of high strides first; None if these do not fit."""
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
    """Return the digits that dimensions have before, and last those that are free, after the
    least exchanges of prime digits that bring the target's to the front and those that others miss
    to the end; None if these are of other dimensions and not of one size."""
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
    """Return digits cut into prime factors, major to minor, the small factors minor."""
    found: list[tuple[int, int]] = []
    for stride, size in reversed(digits):
        for factor in primes(size):
            found.append((stride, factor))
            stride *= factor
    return tuple(reversed(found))
