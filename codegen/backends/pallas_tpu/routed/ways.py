"""Device numbers as digits, and the hops between devices.

    offset    the difference from sender to receiver, digit by digit modulo the digit's extent
    hop       a change of one digit: every device sends to the one whose digit is that much higher

A digit has a prime extent, or is a place on a ring: an axis of the torus that wraps around, of 4,
8, 16, ... devices. On a ring, a hop is 1, 2, 4, ... in either direction. A half turn is two hops of
a quarter turn, because these have a direction. If devices send over any distance, a digit may also
be the place along any axis, and one straight hop makes any change of it.

Devices along an axis that does not wrap around may be on a line: the lower half of a ring with
twice as many places. So among four devices, one up and three down are two different offsets. Each
is used only by devices that have a receiver there, and is reached the shorter way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

import numpy as np

from shardwright.codegen.hardware.topology import Floats
from shardwright.codegen.hardware.torus import Torus
from shardwright.codegen.moves.basis.digits import primes
from shardwright.ir.algebra.index import Integers

Digits = tuple[tuple[int, int], ...]
"""(stride, extent) of every digit of a number, the least significant first."""
Lines = tuple[int, ...]
"""The strides of the digits that are places on lines."""
Turn = tuple[int, int]
"""The time of a hop: its phase, one phase per axis, and its number within the phase."""


def digits_of(devices: int) -> Digits:
    """Return digits of prime extents for the numbers below `devices`.

    >>> digits_of(12)
    ((1, 2), (2, 2), (4, 3))
    """
    found, stride = [], 1
    for extent in primes(devices):
        found.append((stride, extent))
        stride *= extent
    return tuple(found)


def offsets_of(sender: Integers, receiver: Integers, digits: Digits) -> Integers:
    """Return the offset from each sender to its receiver, digit by digit. Both are places."""
    offset = 0 * sender
    for stride, extent in digits:
        offset = offset + (receiver // stride - sender // stride) % extent * stride
    return offset


def added(device: Integers, offset: int, digits: Digits) -> Integers:
    """Return the places at an offset from the given places, digit by digit."""
    found = 0 * device
    for stride, extent in digits:
        found = found + (device // stride + offset // stride) % extent * stride
    return found


@dataclass(frozen=True)
class Numbering:
    """Convert device numbers to places. Without lines, a device's place equals its number.
    `digits`: the digits of places; `lines`: the strides of the digits of which devices use only the
    lower half."""

    digits: Digits
    lines: Lines = ()

    @property
    def size(self) -> int:
        return math.prod(extent for _, extent in self.digits)

    def _digits(self) -> Iterator[tuple[int, int, int]]:
        """Yield each digit's stride in places, its stride in device numbers, and how many of its
        values are in use."""
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
        """Return the offset from each sender to its receiver. Both are device numbers."""
        return offsets_of(self.place(sender), self.place(receiver), self.digits)

    def by_place(self, values: Integers) -> Integers:
        """Reorder the devices' values by place; a place without a device gets -1."""
        found = np.full(self.size, -1)
        found[self.place(np.arange(values.size))] = values
        return found


@dataclass(frozen=True, order=True)
class Hop:
    """A send from every device to the device whose digit (stride, extent) is higher by `by`, modulo
    the extent."""

    stride: int
    extent: int
    by: int

    def to(self, device: Integers) -> Integers:
        """Return the place of the receiver for each sender's place."""
        digit = device // self.stride % self.extent
        return device + ((digit + self.by) % self.extent - digit) * self.stride

    @property
    def back(self) -> Hop:
        return replace(self, by=self.extent - self.by)


@dataclass(frozen=True)
class Ways:
    """The digits of places, and the links that a change of a digit crosses. `axes`: the torus axis
    of each digit; `lengths`: the number of links that a change of a digit by one crosses; `torus`:
    the torus, if known; `ids`: the device id at each place, -1 for none; `straight`: whether any
    change of a digit is a single hop."""

    digits: Digits
    axes: tuple[int, ...]
    lengths: tuple[int, ...]
    torus: Torus | None = field(default=None, compare=False)
    ids: Integers | None = field(default=None, compare=False)
    straight: bool = False

    @staticmethod
    def on_one_axis(digits: Digits) -> Ways:
        """Return ways that assume one link per step along a digit, and no torus."""
        return Ways(digits, (0,) * len(digits), (1,) * len(digits))

    def orders(self) -> tuple[tuple[int, ...], ...]:
        """Return the rotations of the order of axes, in which each axis comes first once and last
        once."""
        axes = tuple(dict.fromkeys(self.axes))
        return tuple(axes[n:] + axes[:n] for n in range(len(axes)))

    def in_order(self, axes: Sequence[int]) -> Digits:
        """Return the digits in the given order of axes. Within an axis, digits whose changes cross
        more links come first."""
        every = zip(self.axes, self.lengths, self.digits, strict=True)
        found = sorted(every, key=lambda each: (axes.index(each[0]), -each[1]))
        return tuple(digit for *_, digit in found)

    def links(self, hop: Hop) -> int:
        length = self.lengths[self.digits.index((hop.stride, hop.extent))]
        return length * min(hop.by, hop.extent - hop.by)

    @cached_property
    def _hops(self) -> list[Hop]:
        return [Hop(*digit, by) for digit in self.digits for by in steps(digit[1])]

    def load(self, hop: Hop, devices: Integers) -> Floats:
        """Return the load of each link of the torus when `devices`, given by place, each send one
        element over a hop. If the torus is unknown, each hop has its own link."""
        if self.torus is None or self.ids is None:
            return np.array([float(self.links(hop) * (each == hop)) for each in self._hops])
        ends = self.ids[devices], self.ids[hop.to(devices)]
        one = np.ones((1, devices.size))
        slow = self.torus.bandwidth / self.torus.bandwidths(self.torus.size)
        found: Floats = self.torus.load(*ends, one, self.torus.size)[0] * slow
        return found

    @property
    def devices(self) -> Integers:
        """The places that have devices."""
        places = np.arange(Numbering(self.digits).size)
        return places if self.ids is None else places[self.ids >= 0]

    def halved(self, offset: int) -> bool:
        """Return whether an offset goes half way around any ring, so that both directions are
        equally long. Return False for straight hops: routers then use both directions."""
        return not self.straight and any(
            is_ring(extent) and offset // stride % extent * 2 == extent
            for stride, extent in self.digits
        )

    def way(self, offset: int, order: tuple[int, ...], sign: int) -> Iterator[tuple[Turn, Hop]]:
        """Yield the hops that make up an offset, with their turns; `order`: the order of axes;
        `sign`: the direction of half turns, 1 or -1."""
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
    """Return whether a digit of this extent is a position on a ring of 4, 8, 16, ... devices."""
    return extent > 2 and extent.bit_count() == 1


@cache
def steps(extent: int) -> tuple[int, ...]:
    """Return the changes of a digit, modulo its extent, that a hop can make: powers of two in both
    directions; on a ring, only up to a quarter turn.

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
    """Return whether hops can make every change of every digit."""
    return all(steps(extent) for _, extent in digits)


@cache
def times(extent: int, value: int) -> tuple[int, int]:
    """Return (step, count): the step whose repetition changes a digit by `value` with the fewest
    hops. On a ring, every step goes to a neighbour.

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
    """Return (turn, step) for each step of changing a digit by `value`. On a ring, the steps are
    the binary digits of the shorter distance; `sign`: the direction of a half turn, 1 or -1.

    >>> changes(16, 13), changes(16, 8), changes(16, 8, -1), changes(5, 3)
    (((0, 15), (1, 14)), ((2, 4), (3, 4)), ((2, 12), (3, 12)), ((0, 4), (1, 4)))
    """
    if not is_ring(extent):
        by, count = times(extent, value) if value else (0, 0)
        return tuple((turn, by) for turn in range(count))
    last = extent.bit_length() - 3  # index of the bit that stands for a quarter turn
    if 2 * value == extent:
        quarter = sign * extent // 4 % extent
        return (last, quarter), (last + 1, quarter)
    distance, ahead = min((value, 1), (extent - value, -1))
    bits = (bit for bit in range(last + 1) if distance >> bit & 1)
    return tuple((bit, ahead * (1 << bit) % extent) for bit in bits)


@cache
def depth(extent: int) -> int:
    """Return the most turns that a change of a digit can take."""
    made = (changes(extent, value) for value in range(extent))
    return 1 + max((at for each in made for at, _ in each), default=-1)
