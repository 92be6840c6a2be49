"""The steps of reductions in rings: the partial sums that each device forwards to its neighbours.

A part of a shard is named after the device that keeps the sum of the part. One half of the part is
summed upwards, starting at the next device of the ring, and the other half downwards, starting at
the previous device.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from shardwright.ir.algebra.index import Integers
from shardwright.ir.mesh import Digit


class RingDigit(Protocol):
    """A ring of devices that differ in one digit of their positions."""

    @property
    def digit(self) -> Digit:
        """The digit of positions in which ring members differ."""

    def coordinate(self, place: Integers) -> Integers:
        """Return the value of the digit at each position of the ring."""


@dataclass(frozen=True)
class Passed:
    """The data that a device forwards in a step: halves of partial sums of some parts."""

    sender: int  # the device id of the sender
    receiver: int
    parts: tuple[int, ...]  # the device ids after which the parts are named
    terms: int  # the number of devices whose partial sums are combined so far
    upwards: bool  # whether the halves are the upper ones, which move upwards


@dataclass(frozen=True)
class RingStep:
    """A step of a ring: its description, such as `step 1 of 3 along x`, and the sends of all
    devices."""

    what: str
    passed: tuple[Passed, ...]


@dataclass(frozen=True)
class Rings:
    """The steps of successive rings.

    `along`: the name of the axis of each ring. `nbytes`: the bytes of half a part. `ids`: the ids
    of all devices.
    """

    along: tuple[str, ...]
    steps: tuple[RingStep, ...]
    nbytes: int
    ids: tuple[int, ...]

    @staticmethod
    def of(
        turns: tuple[RingDigit, ...], along: tuple[str, ...], nbytes: int, ids: Integers
    ) -> Rings:
        """Return the steps of successive rings. `turns`: the digit of each ring. `ids`: the device
        id at each position."""
        steps = []
        for number, (turn, axis) in enumerate(zip(turns, along, strict=True)):
            size = turn.digit.size
            had = math.prod(each.digit.size for each in turns[:number])
            for step in range(1, size):
                passed = _passed(turn, turns[number + 1 :], step, step * had, ids)
                steps.append(RingStep(f"step {step} of {size - 1} along {axis}", tuple(passed)))
        return Rings(along, tuple(steps), nbytes, tuple(ids.tolist()))


def _passed(
    turn: RingDigit, rest: tuple[RingDigit, ...], step: int, terms: int, ids: Integers
) -> Iterator[Passed]:
    """Yield the sends of all devices in a step of ring `turn`. `rest`: the later rings. `terms`:
    the number of devices whose partial sums are combined."""
    stride, size = turn.digit.stride, turn.digit.size
    order = turn.coordinate(np.arange(size))
    places = np.empty(size, np.int64)
    places[order] = np.arange(size)
    for position in range(ids.size):
        own = position // stride % size
        for way in (1, -1):
            there, keeper = (
                position + (int(order[(places[own] + by) % size]) - own) * stride
                for by in (way, -way * step)
            )
            parts = tuple(sorted(int(ids[each]) for each in _among(keeper, rest)))
            yield Passed(int(ids[position]), int(ids[there]), parts, terms, way > 0)


def _among(position: int, turns: tuple[RingDigit, ...]) -> list[int]:
    """Return the positions that differ from `position` at most in the digits of some rings."""
    found = [position]
    for digit in (turn.digit for turn in turns):
        starts = (each - each // digit.stride % digit.size * digit.stride for each in found)
        found = [start + value * digit.stride for start in starts for value in range(digit.size)]
    return found
