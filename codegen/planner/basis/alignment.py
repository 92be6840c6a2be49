"""How a sharding stands to the target: what each dimension already has of it, and what not.

    shared   the major-most digits of a dimension that are those of the target
    excess   its digits after these: they have to go
    missing  the target's digits after these: they have to come

`Arrangements` are the shardings worth a permute: every dimension begins with digits of the target,
and ends with those that other dimensions miss, so that one all-to-all takes them there; between
stand digits that the target does not have, to be gathered last.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from shardwright.codegen.planner.basis.digits import Digits, divisors, merged, minus, parts_of

# Arrangements of one number of parts a dimension that are looked at.
MOST_ARRANGED = 96


@dataclass(frozen=True)
class Alignment:
    """One dimension beside the target's."""

    shared: Digits
    excess: Digits
    missing: Digits


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
class Slot:
    """What is still to be filled of a dimension: a number of parts after the target's digits."""

    head: Digits
    count: int


@dataclass(frozen=True)
class Arrangements:
    """Shardings of so many parts a dimension that begin with digits of the target.

    `runs`: ways in which slots take what others miss, by slot and by the dimension that misses it;
    `left`: for each, the digits that nobody has. `filled`: with these, whatever was there before.
    """

    slots: tuple[Slot, ...]
    runs: tuple[tuple[tuple[Digits, ...], ...], ...]
    left: tuple[Digits, ...]
    filled: tuple[tuple[Digits, ...], ...]

    @staticmethod
    def of(wanted: tuple[Digits, ...], parts: tuple[int, ...], free: Digits) -> Arrangements:
        """Return those nearest to the target; `wanted`: its digits, `free`: those that may be used
        at all."""
        cut = [major_parts(digits, count) for digits, count in zip(wanted, parts, strict=True)]
        slots = tuple(Slot(head, count) for head, _, count in cut)
        heads = tuple(itertools.chain.from_iterable(slot.head for slot in slots))
        runs = tuple(
            itertools.islice(_runs(slots, tuple(rest for _, rest, _ in cut)), MOST_ARRANGED)
        )
        left = tuple(
            minus(
                free, (*heads, *itertools.chain.from_iterable(itertools.chain.from_iterable(run)))
            )
            for run in runs
        )
        none = ((),) * len(slots)
        filled = (
            _filled(slots, run, rest, none, low_first)
            for run, rest in zip(runs, left, strict=True)
            for low_first in (False, True)
        )
        return Arrangements(slots, runs, left, tuple(dims for dims in filled if dims is not None))

    def dims(self, held: tuple[Digits, ...] | None) -> Iterator[tuple[Digits, ...]]:
        """Yield the digits of every dimension, each sharding once; `held`: the digits before, of
        which those that may stay do."""
        found = dict.fromkeys(self.filled)
        for run, rest in zip(self.runs, self.left, strict=True):
            for kept_first in (True, False):
                dims = held and _filled(self.slots, run, rest, held, False, kept_first)
                if dims:
                    found[dims] = None
        yield from found


def _runs(
    slots: tuple[Slot, ...], missing: tuple[Digits, ...]
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
    slots: tuple[Slot, ...],
    runs: tuple[tuple[Digits, ...], ...],
    left: Digits,
    held: tuple[Digits, ...],
    low_first: bool,
    kept_first: bool = True,
) -> tuple[Digits, ...] | None:
    """Return the dimensions with what their slots lack made of what is left: digits that they hold
    already, before or after others of low or of high strides first; None where these do not
    fit."""
    dims = []
    for slot, own, before in zip(slots, runs, held, strict=True):
        count = slot.count // math.prod(map(parts_of, own))
        filling: list[tuple[int, int]] = []
        for digit in before:
            for piece in _overlaps(digit, left):
                count = _take(piece, count, filling, low=False)
        left, others = minus(left, tuple(filling)), list[tuple[int, int]]()
        for piece in sorted(left, reverse=not low_first):
            count = _take(piece, count, others, low_first)
        if count > 1:
            return None
        left = minus(left, tuple(others))
        filled = (*filling, *others) if kept_first else (*others, *filling)
        dims.append(merged((*slot.head, *filled, *itertools.chain.from_iterable(own))))
    return tuple(dims)


def _take(digit: tuple[int, int], count: int, filling: list[tuple[int, int]], low: bool) -> int:
    """Append the largest part of a digit, its low or its high end, that divides a count; return
    the rest of the count."""
    stride, size = digit
    part = math.gcd(size, count)
    if part > 1:
        filling.append((stride if low else stride * size // part, part))
    return count // part


def _overlaps(digit: tuple[int, int], left: Digits) -> Iterator[tuple[int, int]]:
    """Yield what of a digit is left, major to minor."""
    stride, size = digit
    for at, room in sorted(left, reverse=True):
        low, top = max(at, stride), min(at * room, stride * size)
        is_cut = top > low and not (low % at or low % stride or top % low)
        if is_cut and not ((at * room) % top or (stride * size) % top):
            yield low, top // low
