"""Device numbers as digits, and the hops between devices.

    offset    the difference from sender to receiver, digit by digit modulo the digit's extent
    hop       a change of one digit: every device sends to the one that far ahead

A digit has a prime extent, or is a place on a ring: an axis of the torus that wraps around, of 4,
8, 16, ... devices. On a ring a hop is 1, 2, 4, ... in either direction, and a half turn is two
quarter hops, which fixes its direction. If devices send over any distance, a digit may also be a
place along any axis, which one straight hop covers.

If an axis does not wrap around, its devices are on a line: the lower half of a ring with twice as
many places. So one up and three down, of four devices, are two offsets, each used only by devices
with such a receiver, and each takes the shorter way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

import numpy as np

from shardwright.codegen.hardware.topology import Floats
from shardwright.codegen.hardware.torus import Torus
from shardwright.codegen.planner.basis.digits import primes
from shardwright.ir.algebra.index import Integers

Digits = tuple[tuple[int, int], ...]
"""(stride, extent) of every digit of a number, minor first."""
Lines = tuple[int, ...]
"""The strides of the digits that are places on lines."""
Turn = tuple[int, int]
"""When a hop is made: its phase, out of one per axis, and its delay within the phase."""


def digits_of(devices: int) -> Digits:
    """Return the digits of the numbers below a count, of prime extents.

    >>> digits_of(12)
    ((1, 2), (2, 2), (4, 3))
    """
    found, stride = [], 1
    for extent in primes(devices):
        found.append((stride, extent))
        stride *= extent
    return tuple(found)


def offsets_of(sender: Integers, receiver: Integers, digits: Digits) -> Integers:
    """Return the offsets of receivers from senders, digit by digit."""
    offset = 0 * sender
    for stride, extent in digits:
        offset = offset + (receiver // stride - sender // stride) % extent * stride
    return offset


def added(device: Integers, offset: int, digits: Digits) -> Integers:
    """Return the devices at an offset, digit by digit."""
    found = 0 * device
    for stride, extent in digits:
        found = found + (device // stride + offset // stride) % extent * stride
    return found


@dataclass(frozen=True)
class Numbering:
    """Converts device numbers to places and back; both are equal without lines. `digits`: those of
    places; `lines`: the digits whose lower half devices occupy."""

    digits: Digits
    lines: Lines = ()

    @property
    def size(self) -> int:
        """The number of places."""
        return math.prod(extent for _, extent in self.digits)

    def _digits(self) -> Iterator[tuple[int, int, int]]:
        """Yield each digit's stride in places, its stride in numbers, and the number of its values
        in use."""
        own = 1
        for stride, extent in self.digits:
            count = extent // 2 if stride in self.lines else extent
            yield stride, own, count
            own *= count

    def place(self, device: Integers) -> Integers:
        """Return the places of devices.

        >>> Numbering(((1, 8), (8, 2)), (1,)).place(np.arange(8)).tolist()
        [0, 1, 2, 3, 8, 9, 10, 11]
        """
        found = 0 * device
        for stride, own, count in self._digits():
            found = found + device // own % count * stride
        return found

    def offsets(self, sender: Integers, receiver: Integers) -> Integers:
        """Return the offsets of receivers from senders, both given by number."""
        return offsets_of(self.place(sender), self.place(receiver), self.digits)

    def by_place(self, values: Integers) -> Integers:
        """Return the devices' values by place, -1 without a device."""
        found = np.full(self.size, -1)
        found[self.place(np.arange(values.size))] = values
        return found


@dataclass(frozen=True, order=True)
class Hop:
    """From every device to the one whose digit (stride, extent) is `by` higher."""

    stride: int
    extent: int
    by: int

    def to(self, device: Integers) -> Integers:
        """Return the receivers of devices."""
        digit = device // self.stride % self.extent
        return device + ((digit + self.by) % self.extent - digit) * self.stride

    @property
    def back(self) -> Hop:
        """The hop back to the sender."""
        return replace(self, by=self.extent - self.by)


@dataclass(frozen=True)
class Ways:
    """`digits` of places, with each one's torus axis, and the links crossed by a change of one.
    `torus`, `ids`: the devices at places, -1 for none, if known; `straight`: whether any change
    of a digit is one hop."""

    digits: Digits
    axes: tuple[int, ...]
    lengths: tuple[int, ...]
    torus: Torus | None = field(default=None, compare=False)
    ids: Integers | None = field(default=None, compare=False)
    straight: bool = False

    @staticmethod
    def on_one_axis(digits: Digits) -> Ways:
        """Return the digits if nothing is known about links."""
        return Ways(digits, (0,) * len(digits), (1,) * len(digits))

    def orders(self) -> tuple[tuple[int, ...], ...]:
        """Return axis orders in which each axis is first once and last once."""
        axes = tuple(dict.fromkeys(self.axes))
        return tuple(axes[n:] + axes[:n] for n in range(len(axes)))

    def in_order(self, axes: Sequence[int]) -> Digits:
        """Return the digits by axis in an order; within each axis, digits that cross the most links
        come first."""
        every = zip(self.axes, self.lengths, self.digits, strict=True)
        found = sorted(every, key=lambda each: (axes.index(each[0]), -each[1]))
        return tuple(digit for *_, digit in found)

    def links(self, hop: Hop) -> int:
        """Return the number of links that a hop crosses."""
        length = self.lengths[self.digits.index((hop.stride, hop.extent))]
        return length * min(hop.by, hop.extent - hop.by)

    @cached_property
    def _hops(self) -> list[Hop]:
        return [Hop(*digit, by) for digit in self.digits for by in steps(digit[1])]

    def load(self, hop: Hop, devices: Integers) -> Floats:
        """Return the load of the torus links if some devices send one byte each over a hop; without
        a known torus each hop has its own link."""
        if self.torus is None or self.ids is None:
            return np.array([float(self.links(hop) * (each == hop)) for each in self._hops])
        ends = self.ids[devices], self.ids[hop.to(devices)]
        one = np.ones((1, devices.size))
        slow = self.torus.bandwidth / self.torus.bandwidths(self.torus.size)
        found: Floats = self.torus.load(*ends, one, self.torus.size)[0] * slow
        return found

    @property
    def devices(self) -> Integers:
        """The places of all devices."""
        places = np.arange(Numbering(self.digits).size)
        return places if self.ids is None else places[self.ids >= 0]

    def halved(self, offset: int) -> bool:
        """Return whether an offset is half around some ring, so that both directions are equally
        long; for a straight hop, routers use both."""
        return not self.straight and any(
            is_ring(extent) and offset // stride % extent * 2 == extent
            for stride, extent in self.digits
        )

    def way(self, offset: int, order: tuple[int, ...], sign: int) -> Iterator[tuple[Turn, Hop]]:
        """Yield the hops that make an offset; `sign`: the direction of half turns."""
        for phase, axis in enumerate(order):
            late = 0
            for (stride, extent), own in zip(self.digits, self.axes, strict=True):
                if own == axis:
                    value = offset // stride % extent
                    whole = ((0, value),) if value else ()
                    made = whole if self.straight else changes(extent, value, sign)
                    for at, by in made:
                        yield (phase, late + at), Hop(stride, extent, by)
                    late += 1 if self.straight else depth(extent)


def is_ring(extent: int) -> bool:
    """Return whether a digit of an extent is a place on a ring."""
    return extent > 2 and extent.bit_count() == 1


@cache
def steps(extent: int) -> tuple[int, ...]:
    """Return the digit changes, modulo the extent, that devices make: powers of two, in both
    directions.

    >>> [steps(extent) for extent in (2, 3, 5, 7, 16, 17)]
    [(1,), (1, 2), (1, 4), (), (1, 2, 4, 12, 14, 15), (1, 16)]
    """
    if is_ring(extent):
        ahead = [1 << bit for bit in range(extent.bit_length() - 2)]
        return (*ahead, *(extent - by for by in reversed(ahead)))
    return tuple(
        by for by in range(1, extent) if by.bit_count() == 1 and (extent - by).bit_count() == 1
    )


def is_routed(digits: Digits) -> bool:
    """Return whether hops connect all devices."""
    return all(steps(extent) for _, extent in digits)


@cache
def times(extent: int, value: int) -> tuple[int, int]:
    """Return the step and its count that change a digit by a value with the fewest hops; on a ring
    from neighbour to neighbour.

    >>> times(5, 2), times(5, 3), times(3, 2), times(16, 9)
    ((1, 2), (4, 2), (2, 1), (15, 7))
    """
    counts = [
        (count, by)
        for by in ((1, extent - 1) if is_ring(extent) else steps(extent))
        for count in range(extent)
        if count * by % extent == value
    ]
    count, by = min(counts)
    return by, count


@cache
def changes(extent: int, value: int, sign: int = 1) -> tuple[tuple[int, int], ...]:
    """Return the steps that change a digit by a value, each with its turn. On a ring these are the
    binary digits of the shorter distance; for a half turn `sign` gives the direction.

    >>> changes(16, 13), changes(16, 8), changes(16, 8, -1), changes(5, 3)
    (((0, 15), (1, 14)), ((2, 4), (3, 4)), ((2, 12), (3, 12)), ((0, 4), (1, 4)))
    """
    if not is_ring(extent):
        by, count = times(extent, value) if value else (0, 0)
        return tuple((turn, by) for turn in range(count))
    last = extent.bit_length() - 3  # index of the bit that is a quarter turn
    if 2 * value == extent:
        quarter = sign * extent // 4 % extent
        return (last, quarter), (last + 1, quarter)
    distance, ahead = min((value, 1), (extent - value, -1))
    bits = (bit for bit in range(last + 1) if distance >> bit & 1)
    return tuple((bit, ahead * (1 << bit) % extent) for bit in bits)


@cache
def depth(extent: int) -> int:
    """Return the most turns that changes of a digit take."""
    made = (changes(extent, value) for value in range(extent))
    return 1 + max((at for each in made for at, _ in each), default=-1)
