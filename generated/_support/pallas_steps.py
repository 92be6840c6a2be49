"""Who forwards what to whom: the schedule of a kernel, as its module states it.

Nobody waits for a round to end. A device sends something on when that has come, and where it goes
is free; every step has semaphores of its own, which say so.
"""

import math
from typing import NamedTuple

from .pallas_peers import div, rem


def hop(place, stride, extent, by):
    """Return the place whose digit (stride, extent) is `by` higher, modulo the extent."""
    digit = rem(div(place, stride), extent)
    return place + (rem(digit + by, extent) - digit) * stride


class Step(NamedTuple):
    """Moves that follow one another, over one hop, or of each so much of it that is one chunk.

    `way`: the hop (stride, extent, by); `first`, `end`: the moves; `come`: earlier steps that a
    device now waits for as their receiver, since this one sends that on; `left`: those it waits for
    as their sender, since what comes in this one takes their places; `told`: whether it tells the
    device that sends to it in this one that these are free.
    """

    turn: int
    way: tuple[int, int, int]
    first: int
    end: int
    chunk: int
    come: tuple[int, ...]
    left: tuple[int, ...]
    told: bool

    @property
    def back(self):
        """The hop to the device that sends to this one."""
        stride, extent, by = self.way
        return stride, extent, extent - by


class Schedule(NamedTuple):
    """Who sends which slots on to whom, step by step.

    `digits`: those of places: of the numbers of devices, but for `lines`, the strides of digits
    along axes that do not wrap around (see `place`); `offsets`: how much farther on, digit by
    digit, the devices are that a slot goes to, or whose shard is wanted from as far back; `starts`:
    where devices differ in what they send over an offset, the slots in which what goes over each is
    at first, and the moves end with its number; `arrives`: the slots in which, in the end, what
    comes from the devices as much farther back is; `moves`: (slot it leaves, slot it comes to,
    where what is sent of it begins if that may be a half (`halves`), its extents); `slots`: how
    many there are.

    Kernels get rows (from, to, [begin], [extents ...], [sent ...], [got ...], [starts ...]): in
    place of the number of an offset what this device sends of a move and what it gets, or whether;
    and where that stands in shards, if it goes from there or to there."""

    digits: tuple[tuple[int, int], ...]
    lines: tuple[int, ...]
    offsets: tuple[int, ...]
    starts: tuple[int, ...] | None
    arrives: tuple[int, ...]
    moves: tuple[tuple[int, ...], ...]
    steps: tuple[Step, ...]
    slots: int
    halves: bool

    @property
    def ways(self):
        """The round of each move, and its hop."""
        found = [(step.turn, step.way, step.first, step.end) for step in self.steps]
        known = {n: (turn, way) for turn, way, first, end in found for n in range(first, end)}
        return [known[number] for number in range(len(self.moves))]

    @property
    def partners(self):
        """The hops to those that a device sends to or gets of."""
        return sorted({hop for step in self.steps for hop in (step.way, step.back)})

    @property
    def places(self):
        """How many places there are."""
        return math.prod(extent for _, extent in self.digits)

    def _sizes(self):
        """Yield of each digit its stride in places, and in numbers of devices, and how many of its
        values devices have: on lines, half of them."""
        own = 1
        for stride, extent in self.digits:
            count = extent // 2 if stride in self.lines else extent
            yield stride, own, count
            own *= count

    def place(self, device):
        """Return the place of a device. On a line devices have the lower half of the places of a
        ring, so that one up is another offset than all the others down."""
        if not self.lines:
            return device
        digits = ((stride, rem(div(device, own), count)) for stride, own, count in self._sizes())
        return sum(stride * digit for stride, digit in digits)

    def device(self, place):
        """Return the device at a place; any device if none is there, with which callers do nothing:
        they ask `is_device`, or whether anything is sent."""
        if not self.lines:
            return place
        digits = ((own, rem(div(place, stride), count)) for stride, own, count in self._sizes())
        return sum(own * digit for own, digit in digits)

    def is_device(self, place):
        """Return whether a device is at a place; True without lines."""
        found = True
        for stride, extent in self.digits:
            if stride in self.lines:
                found = found & (rem(div(place, stride), extent) < extent // 2)
        return found

    def farther(self, place, offset, sign=1):
        """Return the place that is so much farther on, digit by digit; by -1, farther back: that
        is how much farther on the place is than the one of that number."""
        found = 0
        for stride, extent in self.digits:
            digit, by = (rem(div(number, stride), extent) for number in (place, offset))
            found = found + rem(digit + extent + sign * by, extent) * stride
        return found
