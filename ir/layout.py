"""Layouts: the interval of a tensor at each mesh position, and the holder of each element.

Every formula here is written once, and works on Python integers, numpy arrays and sympy expressions
(`ir/algebra/index.py`). A mesh position is the row-major number of a device in its mesh. An axis
reference is one digit of it, `(position floordiv stride) mod size`. Let a tensor dimension of size
K be split over digits of sizes k_1..k_r (major to minor), with values c_1..c_r, N = k_1*...*k_r:

    shard index   s = sum_i c_i * prod_{j>i} k_j              S = K ceildiv N
    flat          sized cut: [s*S, min(s*S + S, K))           owner of element i: i floordiv S
    nested        chunk K over k_1, then that chunk over k_2, ...   (torch DTensor)

`ir/cuts.py` has these cuts and others. Sources: Shardy's representation for flat, the `Shard`
placements of torch's `DTensor` for nested.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from shardwright.ir.algebra.index import (
    Number,
    Value,
    ceil_div,
    floor_div,
    maximum,
    minimum,
    mod,
    weights,
)
from shardwright.ir.cuts import Let, Nested, Sized, unnamed
from shardwright.ir.mesh import AxisRef, Digit, Mesh
from shardwright.ir.sharding import Sharding

Split = Literal["flat", "nested"]

Digits = tuple[Digit, ...]


def merge_digits(digits: tuple[Digit, ...]) -> tuple[Digit, ...]:
    """Merge neighbouring digits (major to minor) that are contiguous in the mesh position, and drop
    digits of size 1."""
    merged: list[Digit] = []
    for digit in digits:
        if digit.size == 1:
            continue
        if merged and merged[-1].stride == digit.stride * digit.size:
            digit = Digit(digit.stride, merged.pop().size * digit.size)
        merged.append(digit)
    return tuple(merged)


def read_digits(digits: tuple[Digit, ...], position: Number) -> Number:
    """Return the mixed-radix number that the given digits (major to minor) of a mesh position
    form."""
    total: Value = 0 * position  # has the type of `position`, even without digits
    for digit in digits:
        total = total * digit.size + _digit(digit.stride, digit.size, position)
    number: Number = total
    return number


def write_digits(digits: tuple[Digit, ...], number: Number) -> Number:
    """Return the mesh position whose given digits form `number` and whose other digits are 0."""
    total: Value = 0 * number
    for digit, value in zip(digits, digit_values(digits, number), strict=True):
        total = total + value * digit.stride
    position: Number = total
    return position


def digit_values(digits: tuple[Digit, ...], number: Number) -> tuple[Number, ...]:
    """Return the values of digits of the given sizes (major to minor) in a mixed-radix number."""
    sizes = tuple(digit.size for digit in digits)
    return tuple(
        _digit(weight, size, number) for size, weight in zip(sizes, weights(sizes), strict=True)
    )


def digits_apart(digits: Digits, others: Digits) -> tuple[Digits, Digits]:
    """Split digits of a position into those that are also in `others`, and the rest, both major
    to minor. If `others` contain only part of a digit, the digit is cut in two where its size
    permits; otherwise it belongs to the rest."""
    shared, rest = [], []
    for digit in digits:
        end = digit.stride * digit.size
        for other in others:
            low, high = max(digit.stride, other.stride), min(end, other.stride * other.size)
            both = digit, other
            apart = any(low % each.stride or each.stride * each.size % high for each in both)
            if low < high and not (apart or high % low):
                rest.append(Digit(high, end // high))
                shared.append(Digit(low, high // low))
                end = low
        rest.append(Digit(digit.stride, end // digit.stride))
    return merge_digits(tuple(shared)), merge_digits(tuple(rest))


def _digit(stride: Value, size: Value, number: Number) -> Number:
    digit: Number = mod(floor_div(number, stride), size)
    return digit


@dataclass(frozen=True)
class DimLayout:
    """One tensor dimension: its extent K, the digits that split it (major to minor), and its split.

    If the extent, or the stride or size of a digit, is a symbol, results are expressions.
    """

    extent: int
    axis_digits: tuple[Digit, ...]
    split: Split = "flat"

    @cached_property
    def digits(self) -> tuple[Digit, ...]:
        """The digits, with contiguous digits merged. The shard index is the same."""
        return merge_digits(self.axis_digits)

    @property
    def parts(self) -> int:
        """N, the number of shards."""
        return math.prod(digit.size for digit in self.axis_digits)

    @property
    def size(self) -> int:
        """S, the extent of the largest shard: K ceildiv N in both splits."""
        return ceil_div(self.extent, self.parts)

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """The number of parts at each level of division, outermost first. A split that equals the
        flat split has one level."""
        sizes = tuple(digit.size for digit in self.axis_digits if digit.size != 1)
        if self.split == "flat" or self.is_even:
            return (self.parts,)
        return sizes

    @property
    def is_flat(self) -> bool:
        """Whether the split has one level of division: equal chunks, of which the last may be
        shorter or empty."""
        return len(self.levels) == 1

    @property
    def is_even(self) -> bool:
        """Whether all shards have the same size; for symbols, whether this holds for all their
        values."""
        return bool(mod(self.extent, self.parts) == 0)

    def index(self, position: Number) -> Number:
        """Return the shard index s of a mesh position."""
        return read_digits(self.digits, position)

    def place(self, index: Number) -> Number:
        """Return the mesh position whose digits form a shard index and whose other digits are 0."""
        return write_digits(self.digits, index)

    @cached_property
    def cut(self) -> Sized | Nested:
        """The cut of the extent into shards."""
        if self.is_flat:
            return Sized(self.extent, self.parts, self.size)
        return Nested(self.extent, self.parts, self.levels)

    def interval(self, index: Number, let: Let = unnamed) -> tuple[Number, Number]:
        """Return the half-open range of elements in a shard."""
        low, high = self.cut.interval(index, let)
        return low, high

    def element(self, index: Value, local: Value, let: Let = unnamed) -> Value:
        """Return the index in the tensor dimension of the element at index `local` of a shard:
        `d(c)[k] -> t[i]`."""
        if self.is_flat:
            return index * self.size + local
        return self.cut.interval(index, let)[0] + local

    def owner(self, element: Value, let: Let = unnamed) -> Value:
        """Return the index of the shard that contains an element (0 <= element < extent)."""
        return self.locate(element, let)[0]

    def locate(self, element: Value, let: Let = unnamed) -> tuple[Value, Value]:
        """Return the index of the shard that contains an element, and the element's index in that
        shard: `t[i] -> d(c)[k]`."""
        if self.parts == 1:
            return 0 * element, element
        return self.cut.locate(element, let)

    def owners(self, low: Value, high: Value, let: Let = unnamed) -> tuple[Value, Value]:
        """Return the first and the last shard that intersect the range [low, high). For an empty
        range, the result is meaningless: it still names a shard."""
        last = self.extent - 1
        return self.owner(minimum(low, last), let), self.owner(maximum(high, 1) - 1, let)

    @property
    def intervals(self) -> tuple[np.ndarray, np.ndarray]:
        """The low and the high ends of all shards: two int64 arrays of length N."""
        return self.cut.intervals


@dataclass(frozen=True)
class HiddenDim:
    """A hidden dimension, which numbers partial sums: its extent is their number, and `axes` are
    the unreduced axes that split it."""

    extent: int
    axes: tuple[AxisRef, ...] = ()

    @staticmethod
    def of(axes: tuple[AxisRef, ...], mesh: Mesh) -> HiddenDim:
        """Return the hidden dimension for the partial sums along some axes of a mesh."""
        return HiddenDim(math.prod(mesh.digit(ref).size for ref in axes), axes)


@dataclass(frozen=True)
class Layout:
    """A tensor on a mesh: a `DimLayout` for each dimension, and the free digits of the position.

    Devices that differ only in `free` digits are replicas. The first `hidden` dimensions represent
    unreduced axes, along which devices hold different partial sums. If an axis stays unreduced,
    source and target both split its hidden dimension; if it is reduced, only the source does.
    """

    mesh: Mesh
    dims: tuple[DimLayout, ...]
    free: tuple[Digit, ...]
    hidden: int = 0

    @staticmethod
    def of(
        sharding: Sharding,
        shape: tuple[int, ...],
        split: str,
        hidden: tuple[HiddenDim, ...] | None = None,
    ) -> Layout:
        """Return the layout of a tensor with this shape under a sharding.

        `split`: "flat" or "nested". `hidden`: the hidden dimensions, by default one for each
        unreduced axis.
        """
        mesh = sharding.mesh
        if hidden is None:
            hidden = tuple(HiddenDim.of((ref,), mesh) for ref in sharding.unreduced)
        first = tuple(DimLayout(terms.extent, _digits(mesh, terms.axes)) for terms in hidden)
        dims = tuple(
            DimLayout(extent, _digits(mesh, dim.axes), "nested" if split == "nested" else "flat")
            for extent, dim in zip(shape, sharding.dims, strict=True)
        )
        used = (*sharding.used(), *(ref for terms in hidden for ref in terms.axes))
        free = merge_digits(_digits(mesh, mesh.refs_free_of(used)))
        return Layout(mesh, first + dims, free, len(first))

    @property
    def replicas(self) -> int:
        """The number of devices that hold each shard."""
        return math.prod(digit.size for digit in self.free)

    @property
    def local_shape(self) -> tuple[int, ...]:
        """The shape of the largest shard."""
        return tuple(dim.size for dim in self.dims[self.hidden :])

    def index(self, position: Number) -> tuple[Number, ...]:
        """Return the shard index of a mesh position along each dimension."""
        return tuple(dim.index(position) for dim in self.dims)

    def replica(self, position: Number) -> Number:
        """Return the number of a mesh position among the replicas of its shard."""
        return read_digits(self.free, position)

    def position(self, index: tuple[Value, ...], replica: Value) -> Value:
        """Return the mesh position of replica number `replica` of the shard with an index along
        each dimension. This is the inverse of `index` and `replica`."""
        placed = write_digits(self.free, replica)
        for dim, value in zip(self.dims, index, strict=True):
            placed = placed + dim.place(value)
        return placed

    def box(self, position: Number) -> tuple[tuple[Number, Number], ...]:
        """Return the half-open interval that a position holds along each dimension."""
        return tuple(dim.interval(dim.index(position)) for dim in self.dims)

    def boxes(self) -> np.ndarray:
        """Return the boxes of all positions: int64 [positions, dimensions, 2]."""
        positions = np.arange(self.mesh.size, dtype=np.int64)
        result = np.empty((self.mesh.size, len(self.dims), 2), dtype=np.int64)
        for axis, dim in enumerate(self.dims):
            low, high = dim.intervals
            index = dim.index(positions)
            result[:, axis, 0], result[:, axis, 1] = low[index], high[index]
        return result


def _digits(mesh: Mesh, refs: tuple[AxisRef, ...]) -> tuple[Digit, ...]:
    return tuple(mesh.digit(ref) for ref in refs)
