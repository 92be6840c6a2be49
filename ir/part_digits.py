"""Find the digits of offsets in parts, with which the proof of a model locates the reads and writes
of relays.

An offset in a part is a mixed-radix number. An increment of a digit adds a fixed step to the offset
in the buffer, and a fixed weight to the index along a tensor dimension. In a loop without carries,
offset and index are therefore both linear in the iteration count.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from shardwright.ir.arrays import Integers
from shardwright.ir.errors import InternalError
from shardwright.ir.kinds import BUFFER, Geometry


class ProofError(InternalError):
    """Raised for a plan that does not move its model correctly."""


class PartDigit(NamedTuple):
    """A digit of the offsets in a part: the value of a factor, from `low` to below `low + extent`.

    An increment of the digit adds `weight` to the index along logical dimension `dim`, and `step`
    to the offset in the buffer. A digit with a single value has step 1.
    """

    step: int
    dim: int
    weight: int
    low: int
    extent: int


class PartAt(NamedTuple):
    """A part at a position: the offset of its first element, and its digits, major to minor."""

    base: int
    digits: tuple[PartDigit, ...]

    @property
    def elements(self) -> int:
        return math.prod(digit.extent for digit in self.digits)


def parts_at(
    geometry: Geometry, tensor: str, position: int, shape: tuple[int, ...]
) -> tuple[PartAt, ...]:
    """Return the non-empty parts of a tensor at a position of a buffer with shape `shape`.
    `tensor`: the index of the tensor in the buffer."""
    buffer, found = geometry.stored.bound[BUFFER], []
    strides = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
    for part, start in zip(buffer.parts, buffer.starts(position), strict=False):
        box = part.box(position)
        if part.tensor != tensor or any(low >= high for low, high in box):
            continue
        digits = []
        for group, (low, high), stride in zip(part.axes, box, strides, strict=True):
            if len(group) == 1:
                (axis,) = group
                digits.append(PartDigit(stride, axis.dim, axis.weight, low, high - low))
                continue
            for place, axis in enumerate(group):
                minor = math.prod(each.size for each in group[place + 1 :])
                digits.append(PartDigit(stride * minor, axis.dim, axis.weight, 0, axis.size))
        base = start * strides[buffer.dim] if strides else 0
        alone = (each._replace(step=1) if each.extent == 1 else each for each in digits)
        found.append(PartAt(base, tuple(alone)))
    return tuple(found)


class RelayEnds(NamedTuple):
    """A relay: the indices of its classes, and for each buffer, the source first, the part and the
    offset of the relay's first element."""

    receiver: int
    sender: int
    parts: tuple[PartAt, ...]
    starts: tuple[int, ...]


def part_of(parts: Sequence[PartAt], start: int) -> PartAt:
    """Return the part that contains the element at offset `start` of a buffer. Raise ProofError if
    there is none."""
    for part in parts:
        rest, inside = start - part.base, start >= part.base
        for digit in part.digits:
            if digit.extent > 1:
                value, rest = divmod(rest, digit.step)
                inside &= value < digit.extent
        if inside and rest == 0:
            return part
    raise ProofError(f"element {start} of a buffer is outside the tensor's parts")


class Write(NamedTuple):
    """The elements of a part that a relay writes."""

    part: PartAt
    first: Integers  # the digits of the first element
    along: Integers  # the change of each digit per iteration of each loop: [loop, digit]
    times: list[int]  # the iteration count of each loop

    @property
    def key(self) -> object:
        """A hashable value that is equal for equal writes to a part."""
        return self.first.tobytes(), self.along.tobytes(), tuple(self.times)


@dataclass(frozen=True)
class LinedUp:
    """The parts that a group of relays reads from the source, or writes in one target buffer. The
    digits of these parts have the same steps, dimensions and weights."""

    parts: list[PartAt]  # the part of each relay
    steps_of: Integers  # the step of each digit
    counts: Integers  # the number of values of each digit: [relay, digit]
    digits: Integers  # the digits of the first element, each minus its low end: [relay, digit]

    @staticmethod
    def of(group: list[RelayEnds], end: int) -> LinedUp:
        """Return the parts of relays in buffer number `end`; 0 is the source."""
        parts = [ends.parts[end] for ends in group]
        rest = np.array([ends.starts[end] - ends.parts[end].base for ends in group])
        steps = np.array([digit.step for digit in parts[0].digits], dtype=np.int64)
        counts = np.array([[digit.extent for digit in part.digits] for part in parts])
        counts = counts.reshape(len(parts), len(steps)).astype(np.int64)
        return LinedUp(parts, steps, counts, _digits(rest, steps, counts))

    def split(self, turn: tuple[int, ...], end: int) -> list[tuple[int, ...]]:
        """Return a loop as nested loops without carries: an inner loop of the iterations until a
        digit overflows, and outer loops.

        `turn`: the iteration count, then the step in each buffer. Raises ProofError if the loop
        passes the end of a dimension.
        """
        times, *steps = turn
        along = self._moved(steps[end])[0]
        first, counts = self.digits[0], self.counts[0]
        room = np.where(along > 0, (counts - 1 - first) // np.maximum(along, 1), times)
        room = np.where(along < 0, first // np.maximum(-along, 1), room)
        inside = min(int(room.min(initial=times)) + 1, times)
        if inside == times:
            return [turn]
        if inside < 2 or times % inside:
            raise ProofError("a loop continues past the end of a dimension")
        outer = times // inside, *(step * inside for step in steps)
        return [*self.split(outer, end), (inside, *steps)]

    def walk(self, turns: list[tuple[int, ...]], end: int) -> Integers:
        """Return the change of each digit per iteration of each loop: [relay, loop, digit]. Raise
        ProofError if a digit leaves its range."""
        shape = len(self.parts), len(turns), len(self.steps_of)
        along = np.zeros(shape, dtype=np.int64)
        low, high = self.digits.copy(), self.digits.copy()
        for number, (times, *steps) in enumerate(turns):
            moved = self._moved(steps[end]) if times > 1 else np.zeros_like(low)
            along[:, number] = moved
            low += np.minimum(moved, 0) * (times - 1)
            high += np.maximum(moved, 0) * (times - 1)
        if (low < 0).any() or (high >= self.counts).any():
            raise ProofError("a loop leaves its part")
        return along

    def _moved(self, step: int) -> Integers:
        """Return the change of each digit from the first element to the element `step` after it:
        [relay, digit]."""
        offsets = self.digits @ self.steps_of + step
        return _digits(offsets, self.steps_of, self.counts) - self.digits

    def logical(self, rank: int) -> Integers:
        """Return the logical index of the first element of each relay: [relay, dimension]."""
        lows = [[digit.low for digit in part.digits] for part in self.parts]
        values = self.digits + np.array(lows, dtype=np.int64).reshape(self.digits.shape)
        return values @ self._weights(rank)

    def steps(self, walk: Integers, rank: int) -> Integers:
        """Return the change of the logical index per iteration of each loop: [relay, loop,
        dimension]. `walk`: the change of the digits."""
        return walk @ self._weights(rank)

    def _weights(self, rank: int) -> Integers:
        found = np.zeros((len(self.steps_of), rank), dtype=np.int64)
        for number, digit in enumerate(self.parts[0].digits):
            found[number, digit.dim] = digit.weight
        return found


def _digits(offsets: Integers, steps: Integers, counts: Integers) -> Integers:
    """Return the digits of offsets in parts, major to minor: [relay, digit]. A digit with a single
    value is 0. Raise ProofError for an offset between elements."""
    found = np.zeros(counts.shape, dtype=np.int64)
    rest = offsets.astype(np.int64)
    for number, step in enumerate(steps.tolist()):
        taken = np.where(counts[:, number] > 1, rest // step, 0)
        found[:, number] = taken
        rest = rest - taken * step
    if rest.any():
        raise ProofError("an offset of a relay is between two elements of a part")
    return found


def check_cover(counts: list[int], writes: list[Write]) -> None:
    """Raise ProofError unless the writes together write each element of a part once. `counts`: the
    number of values of each digit."""
    products = list(itertools.chain(*map(_products, writes)))
    ranges = [[_runs(write, digit) for digit in range(len(counts))] for write in products]
    ends = [
        np.unique([0, count, *itertools.chain(*(each[digit].ravel() for each in ranges))])
        for digit, count in enumerate(counts)
    ]
    times = np.zeros([len(edges) - 1 for edges in ends], dtype=np.int64)
    for write, each in zip(products, ranges, strict=True):
        chosen = [_within(runs, edges) for runs, edges in zip(each, ends, strict=True)]
        held = (np.diff(edges)[places] for edges, places in zip(ends, chosen, strict=True))
        if math.prod(int(widths.sum()) for widths in held) != math.prod(write.times):
            raise ProofError("a relay writes an element twice")
        times[np.ix_(*chosen)] += 1
    if (times != 1).any():
        place = np.argwhere(times != 1)[0].tolist()
        element = tuple(int(edges[n]) for edges, n in zip(ends, place, strict=True))
        raise ProofError(f"element {element} of a part is written {times[tuple(place)]} times")


def _products(write: Write) -> Iterator[Write]:
    """Yield writes that together equal a write, and whose loops change one digit each. Loops that
    change several digits are unrolled."""
    several = np.flatnonzero((write.along != 0).sum(axis=1) > 1).tolist()
    if not several:
        yield write
        return
    number, *_ = several
    along = np.delete(write.along, number, axis=0)
    times = [each for place, each in enumerate(write.times) if place != number]
    for turn in range(write.times[number]):
        first = write.first + turn * write.along[number]
        yield from _products(Write(write.part, first, along, times))


def _runs(write: Write, digit: int) -> Integers:
    """Return the half-open ranges of values of a digit that a write covers: [ranges, 2]."""
    starts, width = write.first[digit : digit + 1], 1
    loops = [
        (abs(int(by)), times, min(int(by), 0) * (times - 1))
        for by, times in zip(write.along[:, digit], write.times, strict=True)
        if by
    ]
    for by, times, before in sorted(loops):
        starts = starts + before
        if by == width and len(starts) == 1:
            width *= times
        else:
            starts = np.add.outer(by * np.arange(times), starts).reshape(-1)
    return np.stack([starts, starts + width], axis=1)


def _within(runs: Integers, edges: Integers) -> Integers:
    """Return the indices of the segments between successive edges that lie in the given ranges."""
    first, last = np.searchsorted(edges, runs.T)
    return np.unique(np.concatenate([np.arange(*pair) for pair in zip(first, last, strict=True)]))
