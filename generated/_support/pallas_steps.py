"""The forwarding schedule of a kernel, as stated in its module.

No device waits for a round to end. A device forwards data once it has arrived and its destination
is free, as the semaphores of each step signal.
"""

from typing import NamedTuple

from .pallas_peers import div, rem


def hop(place, stride, extent, by):
    """Return `place` with its digit (stride, extent) increased by `by`, modulo the extent."""
    digit = rem(div(place, stride), extent)
    return place + (rem(digit + by, extent) - digit) * stride


class Step(NamedTuple):
    """Consecutive moves over one hop, or one chunk of each of these moves.

    `turn`: the round; `way`: the hop (stride, extent, by); `first`, `end`: the range of moves;
    `chunk`: the index of the chunk; `come`: earlier steps whose arrivals a device awaits, because
    this step forwards their data; `left`: earlier steps whose sends it awaits, because arrivals of
    this step overwrite their places; `told`: whether it signals the sender of this step that these
    places are free.
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
        """Return the hop to the device that sends to this one."""
        stride, extent, by = self.way
        return stride, extent, extent - by


class Schedule(NamedTuple):
    """The forwarding of slots, step by step.

    `digits`: (stride, extent) of each digit of places, which are device numbers except along
    `lines`, the strides of digits along axes that do not wrap around (see `place`); `offsets`: the
    distances, digit by digit, from a device ahead to the receivers of its slots, and back to the
    devices whose data it needs; `starts`: the initial slot for each offset if some devices send
    nothing over it, else None; `arrives`: the final slot of the data over each offset; `moves`:
    (slot it leaves, slot it enters, start of the sent range if it may be half (`halves`), its
    extents), plus the index of the offset if there are `starts`; `slots`: the number of slots.

    Kernels get rows (from, to, [begin], [extents ...], [sent ...], [got ...], [starts ...]). The
    extents that this device sends and receives, or flags, replace the index of an offset. The
    starts are in source or target shards, if the data leaves or enters these."""

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
        """Return the round and the hop of each move."""
        known = {n: (s.turn, s.way) for s in self.steps for n in range(s.first, s.end)}
        return [known[number] for number in range(len(self.moves))]

    @property
    def partners(self):
        """Return the hops to the devices with which this device communicates."""
        return sorted({hop for step in self.steps for hop in (step.way, step.back)})

    def _sizes(self):
        """Yield, for each digit, its stride in places, its stride in device numbers, and the number
        of its values that devices use: half of them on lines."""
        own = 1
        for stride, extent in self.digits:
            count = extent // 2 if stride in self.lines else extent
            yield stride, own, count
            own *= count

    def place(self, device):
        """Return the place of a device. On a line, devices occupy the lower half of the places of a
        ring, so that hops up and hops down to the same device are different offsets."""
        if not self.lines:
            return device
        return sum(stride * rem(div(device, own), count) for stride, own, count in self._sizes())

    def device(self, place):
        """Return the device at a place, or an arbitrary device if there is none: callers check
        `is_device`, or whether anything is sent."""
        if not self.lines:
            return place
        return sum(own * rem(div(place, stride), count) for stride, own, count in self._sizes())

    def is_device(self, place):
        """Return whether a place has a device; True without lines."""
        found = True
        for stride, extent in self.digits:
            if stride in self.lines:
                found = found & (rem(div(place, stride), extent) < extent // 2)
        return found

    def farther(self, place, offset, sign=1):
        """Return the place `offset` ahead, digit by digit; with sign -1, the place `offset` behind,
        which equals the distance of `place` ahead of place `offset`."""
        for stride, extent in self.digits:
            by = rem(div(offset, stride), extent)
            place = hop(place, stride, extent, extent + sign * by)
        return place
