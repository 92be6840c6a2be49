"""Compare a sharding with the target, dimension by dimension:

    shared   the major-most digits that the sharding and the target have in common
    excess   the other digits of the sharding, which must be removed
    missing  the other digits of the target, which must be added

`Arrangements` are shardings that a search considers as results of a permute. Each of their
dimensions begins with digits of the target. It ends with digits that are missing from other
dimensions, so that one all-to-all moves them there. Between these are digits that the target does
not use, which are gathered last.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from shardwright.codegen.moves.basis.digits import (
    Digits,
    divisors,
    merged,
    minus,
    parts_of,
    primes,
)

# The maximum number of arrangements to try for given numbers of parts of the dimensions.
MOST_ARRANGED = 96


@dataclass(frozen=True)
class Alignment:
    """The digits of one dimension, compared with the target."""

    shared: Digits
    excess: Digits
    missing: Digits


@functools.cache
def aligned(held: Digits, wanted: Digits) -> Alignment:
    """Return the shared, excess and missing digits of a dimension. `held`, `wanted`: its digits in
    the sharding and in the target, major to minor.

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
    """Return the major-most digits that together split into a divisor of `count`, taking as much as
    possible of each digit; the remaining digits; and `count` divided by this divisor.

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
    """A dimension of an arrangement. `head`: the digits of the target with which it begins.
    `count`: the number of parts into which additional digits must split it."""

    head: Digits
    count: int


@dataclass(frozen=True)
class Arrangements:
    """Shardings with given numbers of parts whose dimensions begin with digits of the target.

    `slots`: the dimensions. `runs`: ways to distribute missing digits over slots; `run[a][b]` are
    the digits missing from dimension b that slot a takes. `filled`: the shardings that complete
    these ways with unused digits, independent of the sharding before the permute.
    """

    slots: tuple[Vacancy, ...]
    runs: tuple[tuple[tuple[Digits, ...], ...], ...]
    filled: tuple[tuple[Digits, ...], ...]

    @staticmethod
    def of(wanted: tuple[Digits, ...], parts: tuple[int, ...], free: Digits) -> Arrangements:
        """Return the arrangements with `parts` parts of the dimensions. `wanted`: the digits of
        each dimension in the target. `free`: all digits that may be used."""
        cut = [major_parts(digits, count) for digits, count in zip(wanted, parts, strict=True)]
        slots = tuple(Vacancy(head, count) for head, _, count in cut)
        every = _runs(slots, tuple(rest for _, rest, _ in cut))
        runs = tuple(itertools.islice(every, MOST_ARRANGED))
        filled = (_filled(slots, run, free, low) for run in runs for low in (False, True))
        return Arrangements(slots, runs, tuple(dims for dims in filled if dims is not None))

    def dims(self, held: tuple[Digits, ...] | None, free: Digits) -> Iterator[tuple[Digits, ...]]:
        """Yield the digits of all dimensions for each arrangement, each once.

        `held`: the digits of all dimensions before the permute, or None. With `held`, also yield
        arrangements that change only a few of these digits. `free`: the digits that are unused
        before the permute.
        """
        found = dict.fromkeys(self.filled)
        for run in self.runs if held is not None else ():
            dims = _swapped(self.slots, run, (*(held or ()), free))
            if dims is not None:
                found[dims] = None
        yield from found


def _runs(
    slots: tuple[Vacancy, ...], missing: tuple[Digits, ...]
) -> Iterator[tuple[tuple[Digits, ...], ...]]:
    """Yield the ways to distribute the missing digits of each dimension over the slots of other
    dimensions, starting with the ways that distribute the most digits."""

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
    """Yield each way in which slot number `dim` can take missing digits, as two tuples: the digits
    that it takes from each dimension, and the digits that each dimension still lacks.

    `count`: the number of parts of the slot. `lacking`: the missing digits of each dimension.
    """

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
    """Return the digits of all dimensions after slots are filled with unused digits, or None if the
    unused digits do not fit.

    `left`: the digits that may be used. `low_first`: whether digits with low strides are used
    first.
    """
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
    """Return the digits of all dimensions after a few exchanges of prime digits, such that each
    dimension begins with the head of its slot and ends with the digits of its run.

    `rows`: the digits of each dimension before the permute, then the unused digits. Returns None if
    two digits of different size would be exchanged, or if a dimension has too few digits.
    """
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
    """Return the prime factors of digits, major to minor. The factors of each digit are in
    descending order."""
    found: list[tuple[int, int]] = []
    for stride, size in reversed(digits):
        for factor in primes(size):
            found.append((stride, factor))
            stride *= factor
    return tuple(reversed(found))
