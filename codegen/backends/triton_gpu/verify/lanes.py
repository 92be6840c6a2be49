"""The events of all ranks, as lanes, to find races and waits that never end.

A lane is a sequence of events: of a stream, of a process's own work on a CPU, or of one message in
flight. Lanes wait for each other. They are executed in one order that their waits allow; vector
clocks extend the result to all such orders.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from shardwright.codegen.backends.triton_gpu.verify.addresses import Addresses
from shardwright.codegen.checks.clocks import Actor, Clock, Race, Watched, carry_out
from shardwright.codegen.checks.compare import MismatchError

NOWHERE: Addresses = np.empty(0, dtype=np.uint64)


class Access(NamedTuple):
    """The accesses of a launch, or of a part of one: the addresses of the bytes that it reads, and
    of the bytes that it writes."""

    reads: Addresses = NOWHERE
    writes: Addresses = NOWHERE


class Follow(NamedTuple):
    """Wait for the first `events` events of another lane."""

    lane: Lane
    events: int


class Meet(NamedTuple):
    """A named barrier, at which `lanes` lanes wait for each other."""

    name: Hashable
    lanes: int


class Tell(NamedTuple):
    """Send the signal `name`, which releases the matching `Take`."""

    name: Hashable


class Take(NamedTuple):
    """Wait for the signal `name`."""

    name: Hashable


Event = Access | Follow | Meet | Tell | Take


@dataclass(eq=False)
class Lane:
    """A sequence of events. `said`: for each event, a description of the work to which it belongs;
    `knows`: the lane's clock after each event executed so far."""

    events: list[Event] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    knows: list[Clock] = field(default_factory=list)

    def add(self, event: Event, said: str) -> None:
        """Append an event; `said`: a description of the work to which it belongs."""
        self.events.append(event)
        self.said.append(said)

    def wait(self, other: Lane, said: str) -> None:
        """Append a wait for all events that another lane has so far."""
        self.add(Follow(other, len(other.events)), said)


class Lanes:
    """Lanes, and the watched memory that they access."""

    def __init__(self, lanes: Sequence[Lane], memory: Sequence[Watched]) -> None:
        self._lanes, self._memory = lanes, sorted(memory, key=lambda each: each.start)
        self._starts = np.array([each.start for each in self._memory], dtype=np.uint64)
        self._met: dict[Hashable, dict[int, list[Clock]]] = defaultdict(dict)
        self._told: dict[Hashable, list[Clock]] = {}

    def check(self) -> None:
        """Execute the lanes. Raises MismatchError for a race, for a wait that never ends, and for
        an access outside the memory."""
        ends = carry_out([lane.events for lane in self._lanes], self._step)
        for lane, end in zip(self._lanes, ends, strict=True):
            if end < len(lane.events):
                what = type(lane.events[end]).__name__
                raise MismatchError(
                    f"{lane.said[end]} waits for a signal that never comes ({what})"
                )

    def _step(self, number: int, event: Event) -> bool:
        """Execute a lane's event. Return False, and do not advance, for a wait that cannot end
        yet."""
        lane = self._lanes[number]
        learnt = self._learnt(number, event)
        if learnt is None:
            return False
        clock = lane.knows[-1].copy() if lane.knows else Clock()
        time = len(lane.knows) + 1
        clock.know(number, time)
        for other in learnt:
            clock.join(other)
        if isinstance(event, Access):
            self._access(Actor(number, time, clock), event)
        lane.knows.append(clock)
        return True

    def _learnt(self, number: int, event: Event) -> Sequence[Clock] | None:
        """Return the clocks that a lane learns from an event, or None for a wait that cannot end
        yet."""
        own = self._lanes[number].knows[-1:]
        match event:
            case Follow(other, events):
                if len(other.knows) < events:
                    return None
                return other.knows[max(events - 1, 0) : events]
            case Meet(name, lanes):
                met = self._met[name]
                met[number] = own
                if len(met) < lanes:
                    return None
                return [clock for each in met.values() for clock in each]
            case Tell(name):
                self._told[name] = own
            case Take(name):
                return self._told.get(name)
        return []

    def _access(self, actor: Actor, access: Access) -> None:
        for addresses, use in ((access.reads, Watched.read), (access.writes, Watched.write)):
            for memory, places in self._places(actor, addresses):
                race = use(memory, places, actor)
                if race is not None:
                    raise MismatchError(self._said(actor, memory, race))

    def _places(self, actor: Actor, addresses: Addresses) -> Iterator[tuple[Watched, Any]]:
        """Yield each watched memory that contains any of the addresses, with their offsets in it.
        Raises MismatchError for an address outside all of them."""
        which = np.searchsorted(self._starts, addresses, side="right") - 1
        # In order of first use, because addresses differ from run to run.
        for number in dict.fromkeys(which.tolist()):
            inside, memory = addresses[which == number], self._memory[max(number, 0)]
            places = memory.places(inside)
            if len(places) < len(inside):
                said = self._lanes[actor.number].said[actor.time - 1]
                raise MismatchError(f"{said} accesses memory that belongs to no tensor")
            yield memory, places

    def _said(self, actor: Actor, memory: Watched, race: Race) -> str:
        does = f"{self._lanes[actor.number].said[actor.time - 1]} {race.does} {memory.name}"
        if race.other < 0:
            return f"{does}, which was never written"
        other = self._lanes[race.other].said[race.time - 1]
        return f"{does} without waiting for what {other} {race.did} there"
