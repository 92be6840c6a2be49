"""The steps in which devices make the moves of a schedule, as `pallas_steps` of emitted modules
takes them: what each waits for, and what links carry of it. A device waits only for what it sends
or gets itself: where not all send over all offsets, steps may use one place on other devices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shardwright.codegen.backends.pallas_tpu.routed.schedule import Push, RoutedSchedule
from shardwright.codegen.backends.pallas_tpu.routed.strategy import MOST_STEPS, Routed
from shardwright.codegen.backends.pallas_tpu.routed.ways import Hop
from shardwright.codegen.planner.network.forwarding import Step
from shardwright.codegen.planner.network.links import Flows
from shardwright.ir.algebra.index import Integers

Made = tuple[int, Hop, Push, Integers]
"""A move: its round, its hop, and the devices that have something to move."""


class _Part(NamedTuple):
    """Part of a place along its first dimension, on some devices: whether on each."""

    place: int
    low: int
    high: int
    on: npt.NDArray[np.bool_]

    def meets(self, other: _Part) -> bool:
        """Return whether another part of the same place has something of it."""
        near = self.low < other.high and other.low < self.high
        return near and bool((self.on & other.on).any())


@dataclass
class _Uses:
    """Which steps use which parts."""

    known: dict[int, list[tuple[_Part, int]]] = field(default_factory=dict)

    def of(self, parts: Sequence[_Part]) -> set[int]:
        """Return the steps that use some of these parts."""
        pairs = ((part, use) for part in parts for use in self.known.get(part.place, ()))
        return {step for part, (other, step) in pairs if part.meets(other)}

    def add(self, parts: Sequence[_Part], step: int) -> None:
        """Let a step use parts."""
        for part in parts:
            self.known.setdefault(part.place, []).append((part, step))


@dataclass(frozen=True)
class _Burst:
    """Moves that follow one another, over one hop, or one chunk of each."""

    turn: int
    first: int
    end: int
    chunk: int


def runs(schedule: RoutedSchedule, chunks: int) -> Iterator[_Burst]:
    """Yield what steps send, round by round: first of all the first moves of each hop, of their
    first chunk; so many moves at a time that steps are few."""
    counts = [len(sent.moves) for each in schedule.rounds for sent in each.sends]
    most = max(MOST_STEPS, len(counts) * chunks)
    size = next(n for n in count(1) if chunks * sum(-(-moves // n) for moves in counts) <= most)
    begin = 0
    for turn, each in enumerate(schedule.rounds):
        found = []
        for place, moves in enumerate(len(sent.moves) for sent in each.sends):
            for low, chunk in product(range(0, moves, size), range(chunks)):
                run = _Burst(turn, begin + low, begin + min(low + size, moves), chunk)
                found.append(((chunk, low, place), run))
            begin += moves
        yield from (run for _, run in sorted(found, key=lambda pair: pair[0]))


def steps_of(form: Routed, ids: Integers) -> tuple[tuple[Step, ...], ...]:
    """Return the steps of each round; `ids`: the device ids of the numbers of devices."""
    ids = form.numbering.by_place(ids)
    made = list(form.schedule.made(form.digits))
    found: list[list[Step]] = [[] for _ in form.schedule.rounds]
    reads, writes, come, left = _Uses(), _Uses(), set[int](), set[int]()
    for number, run in enumerate(runs(form.schedule, form.chunks)):
        own = made[run.first : run.end]
        taken, landed = _parts(form, own, run.chunk, ids.size)
        needed, freed = writes.of(taken), reads.of(landed)
        waits = tuple(sorted(needed - come)), tuple(sorted(freed - left))
        found[run.turn].append(Step(_flows(form, own, run.chunk, ids), *waits, 1 / form.chunks))
        come, left = come | needed, left | freed
        reads.add(taken, number)
        writes.add(landed, number)
    return tuple(map(tuple, found))


def _parts(
    form: Routed, made: list[Made], chunk: int, devices: int
) -> tuple[list[_Part], list[_Part]]:
    """Return what moves read where, and write where."""
    taken: list[_Part] = []
    landed: list[_Part] = []
    for _, hop, move, senders in made:
        ends = (move.here, senders, taken), (move.there, hop.to(senders), landed)
        for place, where, parts in ends:
            on = np.zeros(devices, dtype=np.bool_)
            on[where] = True
            parts.append(_Part(place, *_span(form, move, chunk), on))
    return taken, landed


def _span(form: Routed, move: Push, chunk: int) -> tuple[int, int]:
    """Return from where to where along the first dimension of its places a chunk goes."""
    begin, extent = form.slot.part(move.number, move.halves)
    if form.chunks == 1:
        return begin, begin + extent
    unit = form.slot.units[0]
    low, high = (extent // unit * each // form.chunks * unit for each in (chunk, chunk + 1))
    return begin + low, begin + high


def _flows(form: Routed, made: list[Made], chunk: int, ids: Integers) -> Flows:
    """Return the messages of a step."""
    senders, receivers, weights = [], [], []
    for _, hop, move, devices in made:
        sizes = form.carried(move, devices, _span(form, move, chunk))
        senders.append(ids[devices])
        receivers.append(ids[hop.to(devices)])
        weights.append(1.0 * form.itemsize * sizes)
    return Flows(np.concatenate(senders), np.concatenate(receivers), np.concatenate(weights))
