"""The steps in which devices make a schedule's moves, with their waits and their load on links.

All devices make the same steps in the same order and wait only for earlier steps, so they cannot
deadlock. A device waits only for its own sends and arrivals: if some devices have no data for some
offsets, two steps may use the same place on different devices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shardwright.codegen.backends.pallas_tpu.routed.schedule import Push, RoutedSchedule
from shardwright.codegen.backends.pallas_tpu.routed.strategy import MOST_STEPS, ForwardingForm
from shardwright.codegen.backends.pallas_tpu.routed.ways import Hop
from shardwright.codegen.moves.network.forwarding import Step
from shardwright.codegen.moves.network.links import Flows
from shardwright.ir.algebra.index import Integers

Made = tuple[int, Hop, Push, Integers]
"""(round, hop, move, devices): a move, and the devices that have data to copy."""


class _Part(NamedTuple):
    """The range [low, high) of a place along its first dimension; `on`: for each device, whether
    the move uses the range there."""

    place: int
    low: int
    high: int
    on: npt.NDArray[np.bool_]

    def meets(self, other: _Part) -> bool:
        near = self.low < other.high and other.low < self.high
        return near and bool((self.on & other.on).any())


@dataclass
class _Uses:
    known: dict[int, list[tuple[_Part, int]]] = field(default_factory=dict)

    def of(self, parts: Sequence[_Part]) -> set[int]:
        pairs = ((part, use) for part in parts for use in self.known.get(part.place, ()))
        return {step for part, (other, step) in pairs if part.meets(other)}

    def add(self, parts: Sequence[_Part], step: int) -> None:
        for part in parts:
            self.known.setdefault(part.place, []).append((part, step))


class Burst(NamedTuple):
    """The sends of a step: one chunk of each of the schedule's moves in [first, end), all in round
    `turn` and over the same hop."""

    turn: int
    first: int
    end: int
    chunk: int


class Waits(NamedTuple):
    """A step's sends, and the waits before them. `come`: the earlier steps whose arrivals a device
    awaits, because this step forwards their data; `left`: the earlier steps whose sends a device
    awaits, because this step's arrivals overwrite the places that they read; `told`: whether a
    device then signals its sender that the places are free."""

    run: Burst
    come: tuple[int, ...]
    left: tuple[int, ...]
    told: bool


def runs(schedule: RoutedSchedule, chunks: int) -> Iterator[Burst]:
    """Yield the sends of each step, round by round. Within a round, the first chunks of all moves
    are sent before the second chunks. To keep steps few, a step combines successive moves."""
    counts = [len(sent.moves) for each in schedule.rounds for sent in each.sends]
    most = max(MOST_STEPS, len(counts) * chunks)
    size = next(n for n in count(1) if chunks * sum(-(-moves // n) for moves in counts) <= most)
    begin = 0
    for turn, each in enumerate(schedule.rounds):
        found = []
        for place, moves in enumerate(len(sent.moves) for sent in each.sends):
            for low, chunk in product(range(0, moves, size), range(chunks)):
                run = Burst(turn, begin + low, begin + min(low + size, moves), chunk)
                found.append(((chunk, low, place), run))
            begin += moves
        yield from (run for _, run in sorted(found, key=lambda pair: pair[0]))


def steps_of(form: ForwardingForm, ids: Integers) -> tuple[tuple[Step, ...], ...]:
    """Return the steps of each round, for the timeline; `ids`: device ids by device number."""
    ids = form.numbering.by_place(ids)
    made = list(form.schedule.made(form.digits))
    found: list[list[Step]] = [[] for _ in form.schedule.rounds]
    for run, come, left, _ in _in_order(form, made, ids.size):
        flows = _flows(form, made[run.first : run.end], run.chunk, ids)
        found[run.turn].append(Step(flows, come, left, 1 / form.chunks))
    return tuple(map(tuple, found))


def waits_of(form: ForwardingForm) -> tuple[Waits, ...]:
    """Return the steps of a module. All devices make the same waits, so compute only those of
    device 0."""
    sends = (sent for each in form.schedule.rounds for sent in each.sends)
    nobody = np.arange(1)
    made = [(0, sent.hop, move, nobody) for sent in sends for move in sent.moves]
    return tuple(_in_order(form, made, 1))


def _in_order(form: ForwardingForm, made: list[Made], devices: int) -> Iterator[Waits]:
    reads, writes, come, left = _Uses(), _Uses(), set[int](), set[int]()
    for number, run in enumerate(runs(form.schedule, form.chunks)):
        taken, landed = _parts(form, made[run.first : run.end], run.chunk, devices)
        needed, freed = writes.of(taken), reads.of(landed)
        yield Waits(run, tuple(sorted(needed - come)), tuple(sorted(freed - left)), bool(freed))
        come, left = come | needed, left | freed
        reads.add(taken, number)
        writes.add(landed, number)


def _parts(
    form: ForwardingForm, made: list[Made], chunk: int, devices: int
) -> tuple[list[_Part], list[_Part]]:
    """Return the parts that moves read and the parts that they write. With `devices` 1, compute
    only device 0, both as sender and as receiver."""
    taken: list[_Part] = []
    landed: list[_Part] = []
    for _, hop, move, senders in made:
        receivers = hop.to(senders) if devices > 1 else senders
        ends = (move.here, senders, taken), (move.there, receivers, landed)
        for place, where, parts in ends:
            on = np.zeros(devices, dtype=np.bool_)
            on[where] = True
            parts.append(_Part(place, *_span(form, move, chunk), on))
    return taken, landed


def _span(form: ForwardingForm, move: Push, chunk: int) -> tuple[int, int]:
    """Return the range [low, high) of a move's chunk along the first dimension of its places."""
    begin, extent = form.slot.part(move.halves)
    if form.chunks == 1:
        return begin, begin + extent
    unit = form.slot.unit
    low, high = (extent // unit * each // form.chunks * unit for each in (chunk, chunk + 1))
    return begin + low, begin + high


def _flows(form: ForwardingForm, made: list[Made], chunk: int, ids: Integers) -> Flows:
    senders, receivers, weights = [], [], []
    for _, hop, move, devices in made:
        sizes = form.carried(move, devices, _span(form, move, chunk))
        senders.append(ids[devices])
        receivers.append(ids[hop.to(devices)])
        weights.append(1.0 * form.itemsize * sizes)
    return Flows(np.concatenate(senders), np.concatenate(receivers), np.concatenate(weights))
