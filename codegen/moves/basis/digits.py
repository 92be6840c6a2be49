"""Digits of a mesh position as pairs (stride, size), used by the search instead of axes."""

from __future__ import annotations

import functools
import math

Pair = tuple[int, int]
"""A digit of the mesh position as (stride, size)."""

Digits = tuple[Pair, ...]
"""Digits, major to minor."""


@functools.cache
def merged(digits: Digits) -> Digits:
    """Merge contiguous neighbours of digits (major to minor), and drop digits of size 1."""
    joined: list[Pair] = []
    for stride, size in digits:
        if size == 1:
            continue
        if joined and joined[-1][0] == stride * size:
            joined[-1] = stride, joined[-1][1] * size
        else:
            joined.append((stride, size))
    return tuple(joined)


@functools.cache
def ordered(digits: Digits) -> Digits:
    """Sort digits by descending stride, and merge contiguous digits."""
    return merged(tuple(sorted(digits, reverse=True)))


@functools.cache
def parts_of(digits: Digits) -> int:
    """Return the number of parts into which digits split a dimension: the product of their
    sizes."""
    return math.prod(size for _, size in digits)


@functools.cache
def divisors(number: int) -> tuple[int, ...]:
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))


@functools.cache
def factorings(number: int, count: int) -> tuple[tuple[int, ...], ...]:
    """Return all tuples of `count` factors with product `number`.

    >>> factorings(4, 2)
    ((1, 4), (2, 2), (4, 1))
    """
    if count == 0:
        return ((),) if number == 1 else ()
    return tuple(
        (first, *rest)
        for first in divisors(number)
        for rest in factorings(number // first, count - 1)
    )


def primes(number: int) -> tuple[int, ...]:
    """Return the prime factors of a number with multiplicity, ascending."""
    found, divisor = [], 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            found.append(divisor)
            number //= divisor
        divisor += 1
    return (*found, number) if number > 1 else tuple(found)


@functools.cache
def minus(digits: Digits, taken: Digits) -> Digits:
    """Return digits without the digits, or parts of digits, in `taken`."""
    left = []
    for stride, size in digits:
        at, top = stride, stride * size
        for low, count in sorted(taken):
            if stride <= low < top:
                if low > at:
                    left.append((at, low // at))
                at = low * count
        if top > at:
            left.append((at, top // at))
    return ordered(tuple(left))


def tail(digits: Digits, major: Digits) -> Digits | None:
    """Return the digits after `major`, or None if `digits` does not begin with `major`.

    >>> tail(((1, 6),), ((2, 3),))
    ((1, 2),)
    >>> tail(((4, 2), (1, 2)), ((1, 2),)) is None
    True
    """
    left = list(digits)
    for stride, size in major:
        while size > 1:
            if not left:
                return None
            low, count = left.pop(0)
            if low * count != stride * size:
                return None
            taken = min(count, size)
            if count % taken or size % taken:
                return None
            if count > taken:
                left.insert(0, (low, count // taken))
            size //= taken
    return tuple(left)
