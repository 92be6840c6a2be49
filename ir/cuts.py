"""Cuts: divisions of a dimension of K elements into N shards, in closed form.

Every formula is written once, and works on Python integers, numpy arrays and sympy expressions
(`ir/algebra/index.py`). With s a shard, i an element and `clamp(x) = max(min(x, K), 0)`:

    sized(S, a)    [clamp(s*S - a), clamp((s+1)*S - a))    owner of i: (i + a) floordiv S
    balanced       q, r = divmod(K, N); begins at s*q + min(s, r)
                   owner of i: max(i floordiv (q+1), (i - r) floordiv q)
    nested         chunk K over k_1, then that chunk over k_2, ...    (torch DTensor)
    listed         a table of boundaries               owner of i: the number of inner boundaries
                                                       that are at most i
    cover(B)       the blocks of B elements that intersect the shard [lo, hi) of another cut:
                   [lo floordiv B, hi ceildiv B); shards may overlap
    window         a range of a cut dimension: the other cut's interval minus the offset, clamped

Why the owner of a balanced cut is a maximum: up to element r*(q+1), every shard has q + 1 elements,
so the first term is the owner and the second is no greater. From element r*(q+1) on, every shard
has q elements, and each of the first r shards has one more, so the second term is the owner and the
first is no greater.

The shards that intersect a range [lo, hi) are the shards from the owner of lo to the owner of
hi - 1. The boundaries of two sized cuts repeat together every lcm(S, T) elements. If their offsets
agree modulo gcd(S, T), the widths of all tiles are multiples of gcd(S, T); `ir/tiles.py` counts the
tiles of a period.

Sources: torch's `chunk` (sized with S = K ceildiv N, nested), numpy's `array_split` (balanced),
vLLM's and Megatron's padded vocabularies (sized), block scales of fp8 weights (cover).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from shardwright.ir.algebra.index import (
    Value,
    ceil_div,
    count_at_most,
    floor_div,
    maximum,
    minimum,
    mod,
    pick,
    weights,
)

# The type of a function that assigns an intermediate value to a variable in emitted code and
# returns the variable. Outside emission, it is `unnamed`, which returns the value itself.
Let = Callable[[str, Value], Value]
Pair: TypeAlias = tuple[Value, Value]


def unnamed(_name: str, value: Value) -> Value:
    """Return an intermediate value unchanged, without a variable for it."""
    return value


@dataclass(frozen=True)
class _OneCut(ABC):
    """The interface of all cuts; `extent` is K, `parts` is N. Both may be symbols."""

    extent: int
    parts: int

    @abstractmethod
    def interval(self, shard: Value, let: Let = unnamed) -> Pair:
        """Return the half-open range of elements of a shard."""

    @abstractmethod
    def owner(self, element: Value, let: Let = unnamed) -> Value:
        """Return the index of the shard that contains an element; the first one if several do."""

    @property
    def step(self) -> int | None:
        """The distance between successive boundaries if all distances are equal, else None."""
        return None

    @property
    def phase(self) -> int:
        """The number of elements between the start of the first shard and the start of the
        dimension."""
        return 0

    def locate(self, element: Value, let: Let = unnamed) -> Pair:
        """Return the index of the shard that contains an element, and the element's index in it."""
        shard = self.owner(element, let)
        return shard, element - self.interval(shard, let)[0]

    def owners(self, low: Value, high: Value, let: Let = unnamed) -> Pair:
        """Return the first and the last shard that intersect the range [low, high). For an empty
        range, the result is meaningless: it still names a shard."""
        last = self.extent - 1
        return self.owner(minimum(low, last), let), self.owner(maximum(high, 1) - 1, let)

    def window(self, start: int, extent: int) -> Cut:
        """Return this cut restricted to the `extent` elements from `start` on."""
        if (start, extent) == (0, self.extent):
            return self  # type: ignore[return-value]
        return WindowCut(extent, self.parts, self, start)  # type: ignore[arg-type]

    @cached_property
    def intervals(self) -> tuple[np.ndarray, np.ndarray]:
        """The low and the high ends of all shards: two int64 arrays of length N."""
        low, high = self.interval(np.arange(self.parts, dtype=np.int64))
        return np.broadcast_to(low, (self.parts,)), np.broadcast_to(high, (self.parts,))


@dataclass(frozen=True)
class Sized(_OneCut):
    """Shards of `size` elements; the first shard begins `offset` elements before the dimension."""

    size: int
    offset: int = 0

    @property
    def step(self) -> int:
        return self.size

    @property
    def phase(self) -> int:
        return self.offset

    def interval(self, shard: Value, let: Let = unnamed) -> Pair:
        if self.offset == 0:
            low = let("lo", minimum(shard * self.size, self.extent))
            return low, minimum(low + self.size, self.extent)
        low, high = (
            _clamp(end * self.size - self.offset, self.extent) for end in (shard, shard + 1)
        )
        return low, high

    def owner(self, element: Value, let: Let = unnamed) -> Value:
        return floor_div(element + self.offset, self.size)

    def locate(self, element: Value, let: Let = unnamed) -> Pair:
        if self.offset == 0:
            return floor_div(element, self.size), mod(element, self.size)
        return super().locate(element, let)

    def window(self, start: int, extent: int) -> Cut:
        return Sized(extent, self.parts, self.size, self.offset + start)


@dataclass(frozen=True)
class Balanced(_OneCut):
    """Shards with sizes that differ by at most one, larger shards first, as numpy's `array_split`
    makes them."""

    @property
    def step(self) -> int | None:
        return self.extent // self.parts if self.extent % self.parts == 0 else None

    def interval(self, shard: Value, let: Let = unnamed) -> Pair:
        low, high = (
            end * floor_div(self.extent, self.parts) + minimum(end, mod(self.extent, self.parts))
            for end in (shard, shard + 1)
        )
        return low, high

    def owner(self, element: Value, let: Let = unnamed) -> Value:
        size, extra = floor_div(self.extent, self.parts), mod(self.extent, self.parts)
        of_larger = floor_div(element, size + 1)
        return maximum(of_larger, floor_div(element - extra, maximum(size, 1)))


@dataclass(frozen=True)
class Nested(_OneCut):
    """Chunks of chunks, as torch makes them. `levels`: the number of chunks at each level,
    outermost first."""

    levels: tuple[int, ...]

    def interval(self, shard: Value, let: Let = unnamed) -> Pair:
        low: Value = 0
        length: Value = self.extent
        for parts, weight in zip(self.levels, weights(self.levels), strict=True):
            chunk = let("chunk", ceil_div(length, parts))
            offset = let("offset", minimum(mod(floor_div(shard, weight), parts) * chunk, length))
            low = let("lo", low + offset)
            length = let("length", minimum(chunk, length - offset))
        return low, low + length

    def owner(self, element: Value, let: Let = unnamed) -> Value:
        return self.locate(element, let)[0]

    def locate(self, element: Value, let: Let = unnamed) -> Pair:
        rest: Value = element
        length: Value = self.extent
        shard: Value = 0
        for parts in self.levels:
            chunk = let("chunk", ceil_div(length, parts))
            digit = let("digit", floor_div(rest, chunk))
            rest = let("rest", rest - digit * chunk)
            length = let("length", minimum(chunk, length - digit * chunk))
            shard = let("index", shard * parts + digit)
        return shard, rest


@dataclass(frozen=True)
class Listed(_OneCut):
    """Shards between listed boundaries. `bounds`: N + 1 ascending values from 0 to K."""

    bounds: tuple[int, ...]

    def interval(self, shard: Value, let: Let = unnamed) -> Pair:
        return pick(self.bounds, shard), pick(self.bounds, shard + 1)

    def owner(self, element: Value, let: Let = unnamed) -> Value:
        return count_at_most(self.bounds[1:-1], element)


@dataclass(frozen=True)
class Cover(_OneCut):
    """The blocks of `block` elements that intersect each shard of another cut. K is the number of
    blocks."""

    block: int
    inner: Cut

    def interval(self, shard: Value, let: Let = unnamed) -> Pair:
        low, high = self.inner.interval(shard, let)
        first = floor_div(low, self.block)
        has_any = minimum(high - low, 1)
        return first, first + has_any * (ceil_div(high, self.block) - first)

    def owner(self, element: Value, let: Let = unnamed) -> Value:
        return self.inner.owner(element * self.block, let)

    def owners(self, low: Value, high: Value, let: Let = unnamed) -> Pair:
        last = minimum(high * self.block, self.inner.extent)
        return self.inner.owners(low * self.block, last, let)


@dataclass(frozen=True)
class WindowCut(_OneCut):
    """The restriction of `whole`, a cut of a dimension, to the K elements from `start` on."""

    whole: Cut
    start: int

    def interval(self, shard: Value, let: Let = unnamed) -> Pair:
        low, high = self.whole.interval(shard, let)
        return _clamp(low - self.start, self.extent), _clamp(high - self.start, self.extent)

    def owner(self, element: Value, let: Let = unnamed) -> Value:
        return self.whole.owner(element + self.start, let)

    def owners(self, low: Value, high: Value, let: Let = unnamed) -> Pair:
        return self.whole.owners(low + self.start, high + self.start, let)

    def window(self, start: int, extent: int) -> Cut:
        return WindowCut(extent, self.parts, self.whole, self.start + start)


Cut: TypeAlias = Sized | Balanced | Nested | Listed | Cover | WindowCut


def flat(extent: int, parts: int) -> Sized:
    """Return the flat cut: chunks of K ceildiv N elements; the last may be shorter or empty."""
    return Sized(extent, parts, ceil_div(extent, parts))


def _clamp(value: Value, extent: Value) -> Value:
    return maximum(minimum(value, extent), 0)
