"""Who forwards what to whom, and the steps in which a kernel does it.

Nobody waits for a round to end. A device sends something on when that has come, and where it goes
is free; every step has semaphores of its own, which say so.
"""

import itertools
import math
from typing import NamedTuple

from .pallas_peers import div, rem

# Steps, at most, where hops and rounds are not more: semaphores are few (512 are too many).
MOST = 64


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
    """Who sends which slots on to whom, round by round; `pallas_schedules` makes it of what modules
    say.

    `digits`: those of places: of the numbers of devices, but for `lines`, the strides of digits
    along axes that do not wrap around (see `place`); `rounds`: of each the hops (stride, extent,
    by, number of moves); `moves`: (slot it leaves, slot it comes to, where what is sent of it
    begins if that may be a half, its extents); `offsets`: how much farther on, digit by digit, the
    devices are that a slot goes to, or whose shard is wanted from as far back; `arrives`: the slots
    in which, in the end, what comes from the devices as much farther back is; `partners`: the hops
    to those that a device sends to or gets of; `slots`: how many there are; `starts`: where devices
    differ in what they send over an offset, the slots in which what goes over each is at first, and
    the moves end with its number.

    Kernels get rows (from, to, [begin], [extents ...], [sent ...], [got ...], [starts ...]): in
    place of the number of an offset what this device sends of a move and what it gets, or whether;
    and where that stands in shards, if it goes from there or to there."""

    digits: tuple[tuple[int, int], ...]
    offsets: tuple[int, ...]
    arrives: tuple[int, ...]
    rounds: tuple[tuple[tuple[int, int, int, int], ...], ...]
    moves: tuple[tuple[int, ...], ...]
    partners: tuple[tuple[int, int, int], ...]
    slots: int
    starts: tuple[int, ...] | None = None
    lines: tuple[int, ...] = ()

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

    def steps(self, span, chunks):
        """Return what a device does one after another; `chunks`: into how many moves are cut;
        span(move, chunk): from where to where in its slots one goes.

        All devices make the same steps in one order, and before each wait only for earlier ones:
        so they come to their end.
        """
        # Of each slot: from where to where, in which step.
        reads, writes = dict[int, list[tuple[int, int, int]]](), dict[int, list]()
        come, left, found = set[int](), set[int](), []
        for number, (way, first, end, chunk) in enumerate(self._each(chunks)):
            ends = [(*move[:2], *span(move, chunk)) for move in self.moves[first:end]]
            needed = {step for here, _, *part in ends for step in users(writes, here, part)}
            freed = {step for _, there, *part in ends for step in users(reads, there, part)}
            waits = tuple(sorted(needed - come)), tuple(sorted(freed - left))
            found.append(Step(way, first, end, chunk, *waits, told=bool(freed)))
            come, left = come | needed, left | freed
            for here, there, *part in ends:
                reads.setdefault(here, []).append((*part, number))
                writes.setdefault(there, []).append((*part, number))
        return tuple(found)

    def _each(self, chunks):
        """Yield the hop, the moves and the chunk of every step: in each round the first of every
        hop, and the first chunk of all, so that all links have something to carry."""
        counts, begin = [count for hops in self.rounds for *_, count in hops], 0
        most = max(MOST, len(counts) * chunks)
        sizes = (size for size in itertools.count(1) if chunks * count_runs(counts, size) <= most)
        size = next(sizes)
        for hops in self.rounds:
            found = []
            for place, (*way, count) in enumerate(hops):
                for low, chunk in itertools.product(range(0, count, size), range(chunks)):
                    moves = begin + low, begin + min(low + size, count)
                    found.append((chunk, low, place, tuple(way), moves))
                begin += count
            for chunk, _, _, own, (first, end) in sorted(found):
                yield own, first, end, chunk


def count_runs(counts, size):
    """Return how many runs of at most so many moves there are."""
    return sum(-(-count // size) for count in counts)


def users(uses, slot, part):
    """Return the steps that use some of a part of a slot."""
    low, high = part
    return [step for start, end, step in uses.get(slot, ()) if start < high and low < end]
