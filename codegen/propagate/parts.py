"""Represent axes as parts: stretches of an axis between two borders.

The sub-axis `"x":(m)k` lies between its pre-size m and m*k; a full axis of size n lies between 1
and n. So a full axis is not a special case when axes are split, merged and compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from shardwright.ir.axes import AxisRef, between, borders

Parts = tuple["AxisPart", ...]


class AxisPart(NamedTuple):
    """The stretch of an axis between the borders `low` and `high`. `high` is a multiple of
    `low`."""

    axis: str
    low: int
    high: int

    @property
    def size(self) -> int:
        return self.high // self.low


def part_of(ref: AxisRef, sizes: Mapping[str, int]) -> AxisPart:
    """Return the part that an axis reference denotes."""
    return AxisPart(ref.name, *borders(ref, sizes[ref.name]))


def ref_of(part: AxisPart, sizes: Mapping[str, int]) -> AxisRef:
    """Return the axis reference of a part, in its normal form."""
    return between(part.axis, part.low, part.high, sizes[part.axis])


def size_of(parts: Iterable[AxisPart]) -> int:
    """Return the number of shards into which the parts together split a dimension."""
    return math.prod(part.size for part in parts)


def overlap(a: AxisPart, b: AxisPart) -> bool:
    """Return whether two parts share a stretch of an axis. A part of size 1 overlaps itself."""
    return a.axis == b.axis and (a == b or (a.low < b.high and b.low < a.high))


def merged(parts: Iterable[AxisPart]) -> Parts:
    """Merge adjacent parts: `"x":(1)2, "x":(2)2` becomes `"x":(1)4`."""
    out: list[AxisPart] = []
    for part in parts:
        if out and out[-1].axis == part.axis and out[-1].high == part.low:
            part = AxisPart(part.axis, out.pop().low, part.high)
        out.append(part)
    return tuple(out)


def common(a: Sequence[AxisPart], b: Sequence[AxisPart]) -> tuple[Parts, Parts, Parts]:
    """Return the longest common prefix of two sequences, and the rest of each."""
    first, second, shared = list(a), list(b), []
    while first and second:
        p, q = first[0], second[0]
        high = min(p.high, q.high)
        if (p.axis, p.low) != (q.axis, q.low) or max(p.high, q.high) % high:
            break
        shared.append(AxisPart(p.axis, p.low, high))
        for rest, part in ((first, p), (second, q)):
            rest[:1] = [AxisPart(part.axis, high, part.high)] if high < part.high else []
    return merged(shared), tuple(first), tuple(second)


def without(parts: Sequence[AxisPart], taken: Sequence[AxisPart]) -> Parts:
    """Return the longest prefix of `parts` that does not overlap `taken`. The prefix may end within
    a part."""
    out: list[AxisPart] = []
    for part in parts:
        hit = [other.low for other in taken if overlap(part, other)]
        if not hit:
            out.append(part)
            continue
        low = min(hit)
        if low > part.low and low % part.low == 0 and part.high % low == 0:
            out.append(AxisPart(part.axis, part.low, low))
        break
    return merged(out)


def dividing(parts: Sequence[AxisPart], size: int) -> Parts:
    """Return the longest prefix of `parts` whose size divides `size`. The prefix may end within a
    part."""
    out: list[AxisPart] = []
    for part in parts:
        fitting = math.gcd(size, part.size)
        if fitting > 1:
            out.append(AxisPart(part.axis, part.low, part.low * fitting))
            size //= fitting
        if fitting < part.size:
            break
    return merged(out)


def minus(parts: Iterable[AxisPart], taken: Iterable[AxisPart]) -> Parts:
    left = list(parts)
    for other in taken:
        left = [piece for part in left for piece in _outside(part, other)]
    return merged(left)


def _outside(part: AxisPart, other: AxisPart) -> list[AxisPart]:
    if not overlap(part, other):
        return [part]
    ends = ((part.low, other.low), (other.high, part.high))
    return [AxisPart(part.axis, low, high) for low, high in ends if low < high]
