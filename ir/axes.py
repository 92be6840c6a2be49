"""The algebra of axis references.

An axis reference is a full axis `"x"`, or a sub-axis `"x":(m)k`: reshape the axis of size n to
`[m, k, n/(m*k)]` and take the middle. The *borders* of the sub-axis are its pre-size `m` and its
next pre-size `m*k`, both divisors of n. Every function of this module works with these borders.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from shardwright.ir.errors import InputError, Where, check_type


@dataclass(frozen=True)
class AxisRef:
    """A full axis (`pre` and `size` are None) or the sub-axis `"name":(pre)size`."""

    name: str
    pre: int | None = None  # the product of the sizes of the parts major to it; at least 1
    size: int | None = None  # at least 2

    def __post_init__(self) -> None:
        check_name(self.name)
        if (self.pre is None) != (self.size is None):
            raise InputError(
                "a sub-axis must have a pre-size and a size, and a full axis neither",
                got=f"pre={self.pre}, size={self.size}",
                expected='AxisRef("x", 2, 4) for a sub-axis, or AxisRef("x") for the full axis',
            )
        for number in (self.pre, self.size):
            if number is not None:
                check_type(number, int, 'an integer, as in AxisRef("x", 2, 4)')
        if self.pre is not None and self.pre < 1:
            raise InputError(
                "the pre-size of a sub-axis must be at least 1",
                got=f"pre-size {self.pre} in {self}",
                expected="1, 2, 3, …",
            )
        if self.size is not None and self.size < 2:
            raise InputError(
                "the size of a sub-axis must be greater than 1",
                got=f"size {self.size} in {self}",
                expected="2, 3, 4, …",
            )

    def __str__(self) -> str:
        return f'"{self.name}"' if self.pre is None else f'"{self.name}":({self.pre}){self.size}'


def borders(ref: AxisRef, size: int) -> tuple[int, int]:
    """Return the pre-size and the next pre-size of a reference to an axis of size `size`."""
    if ref.pre is None or ref.size is None:
        return 1, size
    return ref.pre, ref.pre * ref.size


def contains(outer: AxisRef, inner: AxisRef, sizes: Mapping[str, int]) -> bool:
    """Return whether `inner` is part of `outer`.

    >>> contains(AxisRef("x", 1, 4), AxisRef("x", 2, 2), {"x": 8})
    True
    """
    if outer.name != inner.name or not can_coexist(outer, inner, sizes):
        return False
    low, high = borders(outer, sizes[outer.name])
    start, end = borders(inner, sizes[inner.name])
    return low <= start and end <= high


def overlaps(a: AxisRef, b: AxisRef, sizes: Mapping[str, int]) -> bool:
    """Return whether two references share a part of one axis. A full axis overlaps every reference
    to it, even if its size is 1.

    >>> overlaps(AxisRef("x", 1, 4), AxisRef("x", 2, 4), {"x": 8})
    True
    """
    if a.name != b.name:
        return False
    if a.pre is None or b.pre is None:
        return True
    (a_low, a_high), (b_low, b_high) = borders(a, sizes[a.name]), borders(b, sizes[b.name])
    return a_low < b_high and b_low < a_high


def can_coexist(a: AxisRef, b: AxisRef, sizes: Mapping[str, int]) -> bool:
    """Return whether one reshape of the axis can contain both references (Shardy's rule).

    Each border must divide the next larger border: `"x":(1)2` and `"x":(1)3` cannot coexist.
    """
    if a.name != b.name:
        return True
    cuts = sorted({*borders(a, sizes[a.name]), *borders(b, sizes[b.name])})
    return all(high % low == 0 for low, high in itertools.pairwise(cuts))


def merged(refs: Iterable[AxisRef], sizes: Mapping[str, int]) -> tuple[AxisRef, ...]:
    """Merge neighbouring sub-axes: `"x":(1)2, "x":(2)4` becomes `"x":(1)8`, or `"x"` if that is the
    whole axis.

    >>> merged([AxisRef("x", 1, 2), AxisRef("x", 2, 2)], {"x": 4})
    (AxisRef(name='x', pre=None, size=None),)
    """
    out: list[AxisRef] = []
    for ref in refs:
        joined = _joined(out[-1], ref, sizes[ref.name]) if out else None
        if joined is not None:
            out.pop()
        out.append(joined or ref)
    return tuple(out)


def _joined(a: AxisRef, b: AxisRef, size: int) -> AxisRef | None:
    """Return the sub-axis that spans `a` and `b` if `b` begins where `a` ends, else None; a full
    axis has no neighbours."""
    if a.name != b.name or a.pre is None or b.pre is None:
        return None
    (low, middle), (start, high) = borders(a, size), borders(b, size)
    return between(a.name, low, high, size) if middle == start else None


def between(name: str, low: int, high: int, size: int) -> AxisRef:
    """Return the sub-axis from border `low` to border `high` of an axis of size `size`, or the full
    axis if these are its ends."""
    return AxisRef(name) if (low, high) == (1, size) else AxisRef(name, low, high // low)


def pieces(name: str, size: int, cuts: Sequence[int]) -> tuple[AxisRef, ...]:
    """Return the parts of an axis between successive borders.

    `cuts`: the borders in ascending order, with 1 first and `size` last. Raises InputError unless
    each border is a multiple of the previous one.
    """
    if len(cuts) < 2:
        return (AxisRef(name),)
    steps = tuple(itertools.pairwise(cuts))
    for low, high in steps:
        if high % low:
            raise InputError(
                "all sub-axes of an axis must fit one factorization of its size",
                got=f'sub-axes with borders at {low} and {high} on "{name}"={size}',
                expected="each border a multiple of the previous border",
            )
    return tuple(between(name, low, high, size) for low, high in steps)


def check_divides(ref: AxisRef, size: int) -> None:
    """Raise InputError unless the pre-size, the size and their product divide the axis size."""
    if ref.pre is None or ref.size is None:
        return
    parts = (
        ("the pre-size of a sub-axis must divide its axis", "pre-size", ref.pre),
        ("the size of a sub-axis must divide its axis", "size", ref.size),
        (
            "the pre-size times the size of a sub-axis must divide its axis",
            f"{ref.pre}*{ref.size} =",
            ref.pre * ref.size,
        ),
    )
    for rule, what, number in parts:
        if size % number:
            raise InputError(
                rule,
                got=f"{what} {number} in {ref}",
                expected=f'a divisor of {size}, the size of "{ref.name}"',
            )


def check_name(name: object, where: Where = ()) -> None:
    """Raise InputError unless `name` is printable text without quotes and backslashes."""
    if isinstance(name, str) and name and name.isprintable() and not set(name) & {'"', "\\"}:
        return
    raise InputError(
        "the name of an axis must be printable text without quotes or backslashes",
        got=repr(name),
        expected='a name such as "x"',
        where=where,
    )


def axes_text(names: Sequence[str]) -> str:
    """Format the axis names of a collective as an expression: one string, or a tuple."""
    quoted = [f'"{name}"' for name in names]
    return quoted[0] if len(quoted) == 1 else f"({', '.join(quoted)})"
