"""Prove that a plan's data moves a model of full size correctly, without visiting each element.

The proof uses the layouts and `ModelPlan.data`, the numbers that a runtime follows; it does not use
the planner. For each kind it checks, with exact buffers and with padded ones:

    alike     All positions of a class store the same elements at the same offsets. Every position
              that stores elements is in one class of receivers. If a position copies elements from
              itself, it has them.
    right     In each buffer, the loops of a relay stay within one part. One iteration changes digit
              i by c_i, and each digit is in range at both ends of every loop, so no digit carries.
              Then the logical index is linear in the iteration counts, and it suffices that source
              and target have the same first logical index and the same steps.
    once      The relays of a class write products of ranges of a part's digits. The ends of these
              ranges cut the part into cells, and each cell is written once.
    least     A receiver gets as many elements from other devices as it lacks.

The digits are the factors of stored dimensions: an offset in a part is a mixed-radix number. The
proof also checks that each tensor has one member per target buffer, with the kind, the buffers and
the devices of its layouts.
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
"""The value of `sender` in a relay whose elements the receiver copies from itself."""


@dataclass(frozen=True)
class ModelProof:
    """The sizes of a plan that `prove` found correct."""

    tensors: int  # the number of members
    kinds: int
    relays: int  # the number of relays of all kinds
    elements: int  # the number of elements of all target buffers on all devices

    def __str__(self) -> str:
        moved = f"{counted(self.tensors, 'tensor')} of {counted(self.kinds, 'kind')}"
        return (
            "proved: every element of every target buffer is written once, from its own source "
            f"element\n        ({moved}, {self.elements:,} elements by {self.relays:,} relays); "
            "none is redundant"
        )


def prove(plan: ModelPlan, data: dict[str, Any] | None = None) -> ModelProof:
    """Prove that a plan is correct.

    `data`: the data that a runtime follows, by default `plan.data`. Raises ProofError, naming a
    tensor and the fault, for data that does not move the model as its layouts state.
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
    """Raise ProofError unless each tensor has one member per target buffer, and the buckets contain
    all pieces."""
    places = [tuple(each) for each in data["places"]]
    expected = {(each.tensor, each.target_buffer): each for each in plan.kinds.members}
    pieces = 0
    for kind, source, target, turn, count, tensors, held, wanted in data["members"]:
        member = expected.pop((*tensors, *wanted), None)
        if member is None:
            raise ProofError(f"{tensors[0]}: not a tensor of {wanted[0]}, or listed twice")
        if (kind, held) != (member.kind, [member.source_buffer]):
            raise ProofError(
                f"{member.tensor}: its kind or its buffers are not those of its layouts"
            )
        for place, own in ((source, member.source), (target, member.target)):
            if places[place] != plan.kinds.places[own].devices:
                raise ProofError(f"{member.tensor}: its devices are not those of its layouts")
        if turn < 0 or count < 1:
            raise ProofError(f"{member.tensor}: invalid turn {turn} or count of pieces {count}")
        pieces += count
    if expected:
        raise ProofError(f"{next(iter(expected))[0]}: no relay moves it")
    ends = [0, *data["buckets"]]
    if ends[-1] != pieces or ends != sorted(ends):
        raise ProofError(f"bucket ends must ascend to {pieces} pieces; the last is {ends[-1]}")


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
        """Check the kind, and return the number of elements that one member stores on all target
        devices. Raise ProofError for a fault."""
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
                    raise ProofError(f"positions {each} store different elements")
        every = sorted(itertools.chain(*receivers))
        if every != [place for place, parts in enumerate(self.parts[1]) if parts]:
            raise ProofError(
                "receivers must list each position that stores elements once, and no others"
            )
        for each in receivers:
            met = [self.kind.meeting[position] for position in each]
            if len({self.parts[0][place] if place >= 0 else () for place in met}) != 1:
                raise ProofError(f"receivers {each} start with different elements")

    def _check_relays(self) -> None:
        """Check that relays write each element to its place, and record in `written` the writes to
        each class of receivers."""
        by_form: dict[int, list[list[int]]] = {}
        for relay in self.tables["relays"]:
            by_form.setdefault(relay[2], []).append(relay)
        self.written = {number: [] for number in range(len(self.tables["receivers"]))}
        for form, relays in by_form.items():
            source, targets, loops = self.tables["forms"][form]
            if source != 0 or any(targets):
                raise ProofError("a relay names a buffer that does not exist")
            for group in self._grouped(relays, len(targets)):
                self._check_group(group, loops)

    def _grouped(self, relays: list[list[int]], targets: int) -> Iterator[list[RelayEnds]]:
        """Yield groups of relays of one form. Within a group, the parts in each buffer have the
        same steps, dimensions and weights of digits, so that arrays can represent the group."""
        found: dict[object, list[RelayEnds]] = {}
        for relay in relays:
            ends = self._ends(relay)
            if len(ends.parts) != targets + 1:
                raise ProofError(f"a relay to {len(ends.parts) - 1} targets, not {targets}")
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
                raise ProofError(f"position {target} has no elements of its own to copy")
        else:
            source = self.tables["senders"][sender][0]
        sides = (self.parts[0][source], *[self.parts[1][target]] * (len(starts) - 1))
        parts = tuple(map(part_of, sides, starts))
        return RelayEnds(receiver, sender, parts, tuple(starts))

    def _check_group(self, group: list[RelayEnds], loops: list[list[int]]) -> None:
        """Check the relays of a group: in all their buffers, their loops visit the same elements of
        the tensor in the same order."""
        lined = [LinedUp.of(group, end) for end in range(len(group[0].parts))]
        turns = [tuple(loop) for loop in loops]
        for end, line in enumerate(lined):
            turns = list(itertools.chain(*(line.split(turn, end) for turn in turns)))
        walks = [line.walk(turns, end) for end, line in enumerate(lined)]
        for line, walk in zip(lined[1:], walks[1:], strict=True):
            if (line.logical(self.rank) != lined[0].logical(self.rank)).any():
                raise ProofError("the ends of a relay begin at different elements")
            if (line.steps(walk, self.rank) != lined[0].steps(walks[0], self.rank)).any():
                raise ProofError("the ends of a relay visit different elements")
        times = [turn[0] for turn in turns]
        for line, walk in zip(lined[1:], walks[1:], strict=True):
            for row, ends in enumerate(group):
                first, along = line.digits[row], walk[row]
                number = line.parts[row]
                self.written[ends.receiver].append(Write(number, first, along, times))

    def _check_once(self) -> None:
        seen = set()
        for number, positions in enumerate(self.tables["receivers"]):
            for part in self.parts[1][positions[0]]:
                writes = [w for w in self.written[number] if w.part == part]
                key = part.base, tuple(d.extent for d in part.digits), tuple(w.key for w in writes)
                if key not in seen:
                    seen.add(key)
                    check_cover([digit.extent for digit in part.digits], writes)

    def _check_least(self) -> None:
        """Check that receivers get as many elements from other positions as they lack."""
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
                raise ProofError(f"{count} elements arrive, but {grid.elements(lacked)} are needed")

    def _boxes(self, end: int) -> list[list[Box]]:
        """Return the boxes of the tensor at each position of the source (end 0) or target (end
        1)."""
        side, number = (self.kind.source, self.kind.target)[end], self.kind.numbers[end]
        parts = [part for part in side.stored.bound[BUFFER].parts if part.tensor == number]
        return [
            [box for part in parts if (box := box_of(part, position, self.rank)) is not None]
            for position in range(side.stored.mesh.size)
        ]
