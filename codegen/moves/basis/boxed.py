"""The time of steps with shards that do not nest.

The shards of a step *nest* if small shards begin at multiples of their size within large shards.
The step is then one collective on padded shards. Two parts of ten elements have 5 and 5, but four
parts have 3, 3, 3 and 1, so a gather from four parts to two is not such a collective. It moves
boxes in rounds instead. The boxes of a round have equal shapes, and no device sends or receives two
of them. Boxes are assigned to rounds in the order of the distance from sender to receiver.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from shardwright.codegen.moves.network.links import Flows, Network
from shardwright.ir.arrays import Integers
from shardwright.ir.layout import DimLayout, Layout
from shardwright.ir.steps import ReduceStep, Step

Box = tuple[int, int, tuple[int, ...]]
"""The sender and the receiver, as indices into the ids of `rounds_of`, and the shape."""


@dataclass
class BoxRound:
    """Boxes of equal shape that move at once, including local copies. Devices are given by their
    indices into the ids of `rounds_of`.

    `sent`: the receiver of each sender. `taken`: all receivers.
    """

    shape: tuple[int, ...]
    sent: dict[int, int] = field(default_factory=dict)
    taken: set[int] = field(default_factory=set)

    @property
    def away(self) -> list[list[int]]:
        """The pairs [sender, receiver] of different devices."""
        return [[sender, receiver] for sender, receiver in self.sent.items() if sender != receiver]

    @property
    def elements(self) -> int:
        """The number of elements of a box."""
        return math.prod(self.shape)

    def takes(self, sender: int, receiver: int, _shape: tuple[int, ...]) -> bool:
        """Add a box if its sender sends, and its receiver receives, no other box in this round.
        Return whether the box fit."""
        if sender in self.sent or receiver in self.taken:
            return False
        self.sent[sender] = receiver
        self.taken.add(receiver)
        return True


def layouts_of(step: Step) -> tuple[Layout, Layout]:
    """Return the layouts before and after a step."""
    if isinstance(step, ReduceStep):
        return step.reduction.before, step.reduction.after
    return step.exchange.source, step.exchange.target


def fits(step: Step) -> bool:
    """Return whether the shards before and after a step nest."""
    before, after = layouts_of(step)
    sides = before.dims[before.hidden :], after.dims[after.hidden :]
    return all(dims_fit(old, new) for old, new in zip(*sides, strict=True))


def dims_fit(before: DimLayout, after: DimLayout) -> bool:
    """Return whether the shards of two layouts of a dimension nest."""
    small, large = sorted((before, after), key=lambda dim: -dim.parts)
    if small.parts == large.parts:
        ends = zip(before.intervals, after.intervals, strict=True)
        return all(np.array_equal(one, other) for one, other in ends)
    is_flat = small.is_flat and large.is_flat
    return is_flat and sizes_fit(before.extent, large.parts, small.parts)


def sizes_fit(extent: int, few: int, many: int) -> bool:
    """Return whether the shards of `many` parts nest in the shards of `few` parts, where `few`
    divides `many`. If `few` is 1, they always nest, because an unsplit dimension is padded.

    >>> sizes_fit(10, 2, 4), sizes_fit(9, 2, 4), sizes_fit(12, 2, 4), sizes_fit(10, 1, 4)
    (False, False, True, True)
    """
    return few == 1 or -(-extent // many) * (many // few) == -(-extent // few)


def rounds_of(step: Step, ids: Integers) -> Iterator[tuple[BoxRound, ...]]:
    """Yield the rounds of each phase of a step. `ids`: the device ids, ascending."""
    place = {device: rank for rank, device in enumerate(ids.tolist())}
    for phase in step.phases():
        moved = phase.transfers
        shapes = (moved.tensor[:, :, 1] - moved.tensor[:, :, 0]).tolist()
        ends = zip(moved.sender.tolist(), moved.receiver.tolist(), strict=True)
        yield _rounds(
            [
                (place[sender], place[receiver], tuple(shape))
                for (sender, receiver), shape in zip(ends, shapes, strict=True)
            ],
            ids.size,
        )


def seconds_of(step: Step, ids: Integers, network: Network, itemsize: int) -> float:
    """Return the time in seconds of the rounds of a step, run in sequence. `ids`: the device
    ids, ascending."""
    phases = itertools.chain.from_iterable(rounds_of(step, ids))
    return sum(_seconds(each, ids, network, itemsize) for each in phases if each.away)


def _seconds(each: BoxRound, ids: Integers, network: Network, itemsize: int) -> float:
    sender, receiver = ids[np.array(each.away, dtype=np.int64).T]
    weight = np.full(sender.size, float(each.elements * itemsize))
    return network.collective_seconds(network.load(Flows(sender, receiver, weight)))


def _rounds(boxes: list[Box], devices: int) -> tuple[BoxRound, ...]:
    rounds: dict[tuple[int, ...], list[BoxRound]] = {}
    listed: list[BoxRound] = []
    for box in sorted(boxes, key=lambda box: (box[1] - box[0]) % devices):
        alike = rounds.setdefault(box[2], [])
        if not any(each.takes(*box) for each in alike):
            alike.append(BoxRound(box[2]))
            alike[-1].takes(*box)
            listed.append(alike[-1])
    return tuple(listed)
