"""Partial sums that travel round rings, step by step: the data that each device forwards to each
neighbour.

A part of a shard is named after the device that finally keeps it. Half of its partial sums are
combined upwards, starting at the next device, and half downwards, starting at the previous one.
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
    """A ring along a digit of positions."""

    @property
    def digit(self) -> Digit:
        """The digit of positions in which ring members differ."""

    def coordinate(self, place: Integers) -> Integers:
        """Return the coordinates of places of the ring."""


@dataclass(frozen=True)
class Passed:
    """The data that a device forwards in a step: a half (the upper one if upwards) of the partial
    sums of some parts, each combining this many devices."""

    sender: int
    receiver: int
    parts: tuple[int, ...]
    terms: int
    upwards: bool


@dataclass(frozen=True)
class RingStep:
    """A step of a ring along an axis, in words, and the sends of all devices in it."""

    what: str
    passed: tuple[Passed, ...]


@dataclass(frozen=True)
class Rings:
    """The steps of successive rings. `along`: the axes, in words; `nbytes`: the bytes of half a
    part; `ids`: all devices."""

    along: tuple[str, ...]
    steps: tuple[RingStep, ...]
    nbytes: int
    ids: tuple[int, ...]

    @staticmethod
    def of(
        turns: tuple[RingDigit, ...], along: tuple[str, ...], nbytes: int, ids: Integers
    ) -> Rings:
        """Return the steps of rings of devices, whose ids are given by position."""
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
    """Yield the sends of all devices in a step; `rest`: the later rings."""
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
    """Return the positions that differ from a position only in the digits of rings."""
    found = [position]
    for digit in (turn.digit for turn in turns):
        starts = (each - each // digit.stride % digit.size * digit.stride for each in found)
        found = [start + value * digit.stride for start in starts for value in range(digit.size)]
    return found
