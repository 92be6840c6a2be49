"""Proof that a plan's data moves a model correctly, at full size, without walking elements.

The proof uses the layouts and `ModelPlan.data`, the numbers that a runtime follows, not the
planner. It checks for each kind, for exact and for padded buffers:

    alike     positions of a class store the same elements at the same places; every position that
              stores any is in one class of receivers, and it has the elements it takes from itself
    right     in each buffer, a relay's loops step through elements of one part along its digits:
              c_i steps of digit i per iteration, with every digit in range at both ends of every
              loop, so none carries. The logical index is then linear in the iteration counts; its
              start and its steps are the same at both ends
    once      the relays of a class write products of ranges of a part's digits; cut at all ends of
              ranges, each cell is written once
    least     a receiver gets as many elements from others as it lacks

A digit is a factor of a stored dimension; the buffer's strides make it a mixed radix. It also
checks that each tensor has one member per target buffer, with the kind, buffers and places that its
layouts give.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from shardwright.ir.holdings import Box, TensorClasses, box_of
from shardwright.ir.kinds import BUFFER, Kind
from shardwright.ir.model import counted
from shardwright.ir.model_plan import ModelPlan
from shardwright.ir.part_digits import (
    LinedUp,
    ProofError,
    RelayEnds,
    Write,
    check_cover,
    part_of,
    parts_at,
)

OWN = -1
"""The class of senders of elements that a device copies from itself."""


@dataclass(frozen=True)
class ModelProof:
    """The result of a proof; it exists only for correct plans."""

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
    """Prove a plan correct; `data` is what a runtime follows, by default the plan's.

    Raises ProofError, naming a tensor and the fault, for data that does not move the model
    according to its layouts.
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
    """Check that each tensor has one member per target buffer, and that the buckets contain all
    pieces."""
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


class _OfKind:
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
        self.written: dict[int, list[Write]] = {}

    def check(self) -> int:
        """Check the kind and return the number of its target elements. Raise ProofError on a
        fault."""
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
        """Check that relays write elements to their places; record the writes of each class."""
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

    def _grouped(self, relays: list[list[int]], targets: int) -> Iterator[list[RelayEnds]]:
        """Yield groups of relays of one form whose parts have the same digit structure at every
        end."""
        found: dict[object, list[RelayEnds]] = {}
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

    def _ends(self, relay: list[int]) -> RelayEnds:
        sender, receiver, _, *starts = relay
        target = self.tables["receivers"][receiver][0]
        if sender == OWN:
            source = self.kind.meeting[target]
            if source < 0:
                raise ProofError(f"position {target} has nothing of its own")
        else:
            source = self.tables["senders"][sender][0]
        sides = (self.parts[0][source], *[self.parts[1][target]] * (len(starts) - 1))
        parts = tuple(map(part_of, sides, starts))
        return RelayEnds(receiver, sender, parts, tuple(starts))

    def _check_group(self, group: list[RelayEnds], loops: list[list[int]]) -> None:
        """Check all relays of one form and structure at once."""
        lined = [LinedUp.of(group, end) for end in range(len(group[0].parts))]
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
                self.written[ends.receiver].append(Write(number, first, along, times))

    def _check_once(self) -> None:
        """Check that each class writes each element of its parts once."""
        seen = set()
        for number, positions in enumerate(self.tables["receivers"]):
            for part in self.parts[1][positions[0]]:
                writes = [w for w in self.written[number] if w.part == part]
                key = part.base, tuple(d.extent for d in part.digits), tuple(w.key for w in writes)
                if key not in seen:
                    seen.add(key)
                    check_cover([digit.extent for digit in part.digits], writes)

    def _check_least(self) -> None:
        """Check that receivers get each element that they lack from other positions, once."""
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
        """Return the boxes of the tensor at each position."""
        side, number = (self.kind.source, self.kind.target)[end], self.kind.numbers[end]
        parts = [part for part in side.stored.bound[BUFFER].parts if part.tensor == number]
        return [
            [box for part in parts if (box := box_of(part, position, self.rank)) is not None]
            for position in range(side.stored.mesh.size)
        ]
