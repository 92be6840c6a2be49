"""Proof that a plan's data moves a model right, at full size, without walking elements.

It is made from the layouts and from `ModelPlan.data`, the numbers that a runtime follows, not from
what planned them. Of each kind, for exact and for padded buffers:

    alike     positions of a class store the same elements at the same places; every position that
              stores any is in one class of receivers, and what it takes from itself it has
    right     a relay's loops go, in each buffer, from element to element of one part along its
              digits: along digit i by c_i a turn, with every digit in its range at both ends of
              every loop, so that none carries. The logical index is then linear in the turns, and
              it is the same at both ends: start by start, turn by turn
    once      what the relays of a class write to a part are products of ranges of its digits; cut
              at all ends of ranges, each cell is counted once
    least     the elements that come from others are as many as the receiver lacks

A digit is a factor of a stored dimension; the buffer's strides make it a mixed radix. Of members:
each tensor has one for each target buffer that it is in, with the kind, buffers and places that
its layouts say.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from shardwright.ir.arrays import Integers
from shardwright.ir.errors import InternalError
from shardwright.ir.holdings import Box, TensorClasses, box_of
from shardwright.ir.kinds import BUFFER, Geometry, Kind
from shardwright.ir.model_plan import ModelPlan, counted

OWN = -1
"""The class of senders of what a device copies from itself."""


class ProofError(InternalError):
    """A plan that does not move its model right."""


@dataclass(frozen=True)
class ModelProof:
    """What was proved of a plan; it exists for plans that are right alone."""

    tensors: int
    kinds: int
    relays: int
    elements: int

    def __str__(self) -> str:
        moved = f"{counted(self.tensors, 'tensor')} of {counted(self.kinds, 'kind')}"
        return (
            "proved: every element of every target buffer is written once, from its own source "
            f"element\n        ({moved}, {self.elements:,} elements by {self.relays:,} relays); "
            "none is received in vain"
        )


def prove(plan: ModelPlan, data: dict[str, Any] | None = None) -> ModelProof:
    """Return the proof that a plan is right; `data`: what a runtime follows, by default the plan's.

    Raises ProofError, which names a tensor and what is wrong, for data that does not move the model
    as its layouts say.
    """
    said = plan.data if data is None else data
    _check_members(plan, said)
    relays, elements = 0, 0
    counts = plan.counts
    for number, (kind, each) in enumerate(zip(plan.kinds.kinds, said["kinds"], strict=True)):
        for padded in (False, True):
            tables = each if not padded else each["padded"]
            if tables is None and not (kind.source.is_uniform and kind.target.is_uniform):
                raise ProofError(f"{plan.firsts[number]}: padded buffers have no tables")
            if tables is not None:
                try:
                    written = _OfKind(kind, {**each, **tables}, padded).check()
                except ProofError as error:
                    raise ProofError(f"{plan.firsts[number]}: {error}") from None
        relays += len(each["relays"])
        elements += written * counts[number]
    return ModelProof(len(said["members"]), len(plan.kinds.kinds), relays, elements)


def _check_members(plan: ModelPlan, data: dict[str, Any]) -> None:
    """Check that each tensor has one member for each of its target buffers, and that the buckets
    contain all pieces."""
    places = [tuple(each) for each in data["places"]]
    expected = {(each.tensor, each.target_buffer): each for each in plan.kinds.members}
    pieces = 0
    for kind, source, target, turn, count, tensors, held, wanted in data["members"]:
        member = expected.pop((*tensors, *wanted), None)
        if member is None:
            raise ProofError(f"{tensors[0]}: no tensor of the model in {wanted[0]}, or twice")
        if (kind, held) != (member.kind, [member.source_buffer]):
            raise ProofError(
                f"{member.tensor}: another kind, or other buffers, than in its layouts"
            )
        for place, own in ((source, member.source), (target, member.target)):
            if places[place] != plan.kinds.places[own].devices:
                raise ProofError(f"{member.tensor}: on other devices than in its layouts")
        if turn < 0 or count < 1:
            raise ProofError(f"{member.tensor}: turn {turn}, {count} pieces")
        pieces += count
    if expected:
        raise ProofError(f"{next(iter(expected))[0]}: nothing moves it")
    ends = [0, *data["buckets"]]
    if ends[-1] != pieces or ends != sorted(ends):
        raise ProofError(f"buckets end at {ends[-1]} of {pieces} pieces")


class PartDigit(NamedTuple):
    """A digit of a part in a buffer: values `low` to below `low + extent` of a factor, which adds
    `weight` each to the index along the logical dimension `dim`, and are `step` apart (1 where
    there is one value)."""

    step: int
    dim: int
    weight: int
    low: int
    extent: int


class PartAt(NamedTuple):
    """A part of the tensor at a position: where it begins, and its digits, major first."""

    base: int
    digits: tuple[PartDigit, ...]

    @property
    def elements(self) -> int:
        """How many elements it has."""
        return math.prod(digit.extent for digit in self.digits)


def parts_at(
    geometry: Geometry, tensor: str, position: int, shape: tuple[int, ...]
) -> tuple[PartAt, ...]:
    """Return the parts of a tensor in a buffer of a shape at a position, those with elements."""
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


class _OfKind:
    """The proof of a kind."""

    def __init__(self, kind: Kind, tables: dict[str, Any], padded: bool) -> None:
        self.kind, self.tables = kind, tables
        self.rank = len(kind.tensor.shape)
        self.parts = [
            [parts_at(side, number, position, shape) for position, shape in enumerate(shapes)]
            for side, number, shapes in (
                (kind.source, kind.numbers[0], kind.source.buffer_shapes(padded)),
                (kind.target, kind.numbers[1], kind.target.buffer_shapes(padded)),
            )
        ]
        self.written: dict[int, list[_Write]] = {}

    def check(self) -> int:
        """Return how many elements the target has in all; ProofError if they are not right."""
        self._check_classes()
        self._check_relays()
        self._check_once()
        self._check_least()
        return sum(part.elements for parts in self.parts[1] for part in parts)

    def _check_classes(self) -> None:
        senders, receivers = self.tables["senders"], self.tables["receivers"]
        for classes, parts in zip((senders, receivers), self.parts, strict=True):
            for each in classes:
                if not each or len({parts[position] for position in each}) != 1:
                    raise ProofError(f"positions {each} do not store the same")
        every = sorted(itertools.chain(*receivers))
        if every != [place for place, parts in enumerate(self.parts[1]) if parts]:
            raise ProofError("receivers are not the positions that store elements, each once")
        for each in receivers:
            met = [self.kind.meeting[position] for position in each]
            if len({self.parts[0][place] if place >= 0 else () for place in met}) != 1:
                raise ProofError(f"receivers {each} have different elements before")

    def _check_relays(self) -> None:
        """Check that relays take elements to their places; note what each class writes."""
        by_form: dict[int, list[list[int]]] = {}
        for relay in self.tables["relays"]:
            by_form.setdefault(relay[2], []).append(relay)
        self.written = {number: [] for number in range(len(self.tables["receivers"]))}
        for form, relays in by_form.items():
            source, targets, loops = self.tables["forms"][form]
            if source != 0 or any(targets):
                raise ProofError("a relay is of another buffer")
            for group in self._grouped(relays, len(targets)):
                self._check_group(group, loops)

    def _grouped(self, relays: list[list[int]], targets: int) -> Iterator[list[_Ends]]:
        """Yield relays of one form whose parts have digits of one structure at every end."""
        found: dict[object, list[_Ends]] = {}
        for relay in relays:
            ends = self._ends(relay)
            if len(ends.parts) != targets + 1:
                raise ProofError(f"a relay of {len(ends.parts) - 1} targets, not {targets}")
            key = tuple(
                tuple((digit.step, digit.dim, digit.weight) for digit in part.digits)
                for part in ends.parts
            )
            found.setdefault(key, []).append(ends)
        yield from found.values()

    def _ends(self, relay: list[int]) -> _Ends:
        sender, receiver, _, *starts = relay
        target = self.tables["receivers"][receiver][0]
        if sender == OWN:
            source = self.kind.meeting[target]
            if source < 0:
                raise ProofError(f"position {target} has nothing of its own")
        else:
            source = self.tables["senders"][sender][0]
        sides = (self.parts[0][source], *[self.parts[1][target]] * (len(starts) - 1))
        parts = tuple(map(_part_of, sides, starts))
        return _Ends(receiver, sender, parts, tuple(starts))

    def _check_group(self, group: list[_Ends], loops: list[list[int]]) -> None:
        """Check relays of one form and structure, all at once."""
        lined = [_Lined.of(group, end) for end in range(len(group[0].parts))]
        turns = [tuple(loop) for loop in loops]
        for end, line in enumerate(lined):
            turns = list(itertools.chain(*(line.split(turn, end) for turn in turns)))
        walks = [line.walk(turns, end) for end, line in enumerate(lined)]
        for line, walk in zip(lined[1:], walks[1:], strict=True):
            if (line.logical(self.rank) != lined[0].logical(self.rank)).any():
                raise ProofError("a relay begins at another element of the tensor")
            if (line.steps(walk, self.rank) != lined[0].steps(walks[0], self.rank)).any():
                raise ProofError("a relay goes on to other elements of the tensor")
        times = [turn[0] for turn in turns]
        for line, walk in zip(lined[1:], walks[1:], strict=True):
            for row, ends in enumerate(group):
                first, along = line.digits[row], walk[row]
                number = line.parts[row]
                self.written[ends.receiver].append(_Write(number, first, along, times))

    def _check_once(self) -> None:
        """Check that each class writes each element of its parts once."""
        seen = set()
        for number, positions in enumerate(self.tables["receivers"]):
            for part in self.parts[1][positions[0]]:
                writes = [w for w in self.written[number] if w.part == part]
                key = part.base, tuple(d.extent for d in part.digits), tuple(w.key for w in writes)
                if key not in seen:
                    seen.add(key)
                    _check_cover([digit.extent for digit in part.digits], writes)

    def _check_least(self) -> None:
        """Check that receivers take from others what they lack, once."""
        boxes = [self._boxes(end) for end in (0, 1)]
        grid = TensorClasses.of(
            self.kind.tensor.shape, dict.fromkeys(itertools.chain(*boxes[0], *boxes[1]))
        )
        taken = [0] * len(self.tables["receivers"])
        for sender, receiver, form, *_ in self.tables["relays"]:
            loops = self.tables["forms"][form][2]
            taken[receiver] += (sender != OWN) * math.prod(loop[0] for loop in loops)
        for count, positions in zip(taken, self.tables["receivers"], strict=True):
            position = positions[0]
            lacked = grid.mask(boxes[1][position])
            if (own := self.kind.meeting[position]) >= 0:
                lacked &= ~grid.mask(boxes[0][own])
            if grid.elements(lacked) != count:
                raise ProofError(f"{count} elements come, where {grid.elements(lacked)} lack")

    def _boxes(self, end: int) -> list[list[Box]]:
        """Return what positions have of the tensor."""
        side, number = (self.kind.source, self.kind.target)[end], self.kind.numbers[end]
        parts = [part for part in side.stored.bound[BUFFER].parts if part.tensor == number]
        return [
            [box for part in parts if (box := box_of(part, position, self.rank)) is not None]
            for position in range(side.stored.mesh.size)
        ]


class _Ends(NamedTuple):
    """A relay: its classes, and at each end, the source first, its part and where it begins."""

    receiver: int
    sender: int
    parts: tuple[PartAt, ...]
    starts: tuple[int, ...]


def _part_of(parts: Sequence[PartAt], start: int) -> PartAt:
    """Return the part that an element of a buffer is in."""
    for part in parts:
        rest, inside = start - part.base, start >= part.base
        for digit in part.digits:
            if digit.extent > 1:
                value, rest = divmod(rest, digit.step)
                inside &= value < digit.extent
        if inside and rest == 0:
            return part
    raise ProofError(f"element {start} of a buffer is not of the tensor")


class _Write(NamedTuple):
    """What a relay writes to a part: the digits of its first element, and what each loop adds to
    them how often."""

    part: PartAt
    first: Integers
    along: Integers
    times: list[int]

    @property
    def key(self) -> object:
        """What tells it from other writes of a part."""
        return self.first.tobytes(), self.along.tobytes(), tuple(self.times)


@dataclass(frozen=True)
class _Lined:
    """One end of relays whose parts have digits of one structure: of each relay its part, and the
    digits of its first element, from 0."""

    parts: list[PartAt]
    steps_of: Integers  # of each digit
    counts: Integers  # of each relay and digit
    digits: Integers

    @staticmethod
    def of(group: list[_Ends], end: int) -> _Lined:
        """Return an end of relays."""
        parts = [ends.parts[end] for ends in group]
        rest = np.array([ends.starts[end] - ends.parts[end].base for ends in group])
        steps = np.array([digit.step for digit in parts[0].digits], dtype=np.int64)
        counts = np.array([[digit.extent for digit in part.digits] for part in parts])
        counts = counts.reshape(len(parts), len(steps)).astype(np.int64)
        return _Lined(parts, steps, counts, _digits(rest, steps, counts))

    def split(self, turn: tuple[int, ...], end: int) -> list[tuple[int, ...]]:
        """Return a loop as two, where its digits carry: what goes on along a digit as far as that
        has values, and what comes after that."""
        times, *steps = turn
        along = self._moved(steps[end])[0]
        first, counts = self.digits[0], self.counts[0]
        room = np.where(along > 0, (counts - 1 - first) // np.maximum(along, 1), times)
        room = np.where(along < 0, first // np.maximum(-along, 1), room)
        inside = min(int(room.min(initial=times)) + 1, times)
        if inside == times:
            return [turn]
        if inside < 2 or times % inside:
            raise ProofError("a loop goes on past the end of a dimension")
        outer = times // inside, *(step * inside for step in steps)
        return [*self.split(outer, end), (inside, *steps)]

    def walk(self, turns: list[tuple[int, ...]], end: int) -> Integers:
        """Return what each loop adds to the digits, [relay, loop, digit]; ProofError where a digit
        leaves its range."""
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
        """Return by how much each digit differs, of each relay, a step from its first element."""
        offsets = self.digits @ self.steps_of + step
        return _digits(offsets, self.steps_of, self.counts) - self.digits

    def logical(self, rank: int) -> Integers:
        """Return the logical index of the first element of each relay."""
        lows = [[digit.low for digit in part.digits] for part in self.parts]
        values = self.digits + np.array(lows, dtype=np.int64).reshape(self.digits.shape)
        return values @ self._weights(rank)

    def steps(self, walk: Integers, rank: int) -> Integers:
        """Return what each loop adds to the logical index."""
        return walk @ self._weights(rank)

    def _weights(self, rank: int) -> Integers:
        found = np.zeros((len(self.steps_of), rank), dtype=np.int64)
        for number, digit in enumerate(self.parts[0].digits):
            found[number, digit.dim] = digit.weight
        return found


def _digits(offsets: Integers, steps: Integers, counts: Integers) -> Integers:
    """Return the digits of offsets in a part, major first; those of one value are 0."""
    found = np.zeros(counts.shape, dtype=np.int64)
    rest = offsets.astype(np.int64)
    for number, step in enumerate(steps.tolist()):
        taken = np.where(counts[:, number] > 1, rest // step, 0)
        found[:, number] = taken
        rest = rest - taken * step
    if rest.any():
        raise ProofError("a step ends between the elements of a part")
    return found


def _check_cover(counts: list[int], writes: list[_Write]) -> None:
    """Check that products of ranges of digits cover all values, each once."""
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


def _products(write: _Write) -> Iterator[_Write]:
    """Yield a write as products of ranges: one for each turn of loops that move several digits."""
    several = np.flatnonzero((write.along != 0).sum(axis=1) > 1).tolist()
    if not several:
        yield write
        return
    number, *_ = several
    along = np.delete(write.along, number, axis=0)
    times = [each for place, each in enumerate(write.times) if place != number]
    for turn in range(write.times[number]):
        first = write.first + turn * write.along[number]
        yield from _products(_Write(write.part, first, along, times))


def _runs(write: _Write, digit: int) -> Integers:
    """Return the half-open runs of values that a write has along a digit, [runs, 2]."""
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
    """Return the numbers of the segments between edges that lie in runs."""
    first, last = np.searchsorted(edges, runs.T)
    return np.unique(np.concatenate([np.arange(*pair) for pair in zip(first, last, strict=True)]))
