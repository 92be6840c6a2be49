"""Vector clocks, which order events, and data races on bytes.

Each actor has a number, an increasing time, and a clock: for every other actor, the time up to
which it knows all of that actor's events. Two accesses to a byte, at least one of them a write,
race unless one actor knows of the other's access.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

E = TypeVar("E")


class Clock:
    """A vector clock: for each actor, the time up to which its events are known to have
    happened; 0 if none is known."""

    def __init__(self) -> None:
        self._times = np.zeros(0, dtype=np.int64)

    def copy(self) -> Clock:
        """Return an independent copy."""
        other = Clock()
        other._times = self._times.copy()
        return other

    def know(self, number: int, time: int) -> None:
        """Record that all events of actor `number` up to `time` have happened."""
        self._reach(number + 1)
        self._times[number] = max(time, self._times[number])

    def join(self, other: Clock) -> None:
        """Record every event that `other` knows."""
        size = len(other._times)
        self._reach(size)
        np.maximum(self._times[:size], other._times, out=self._times[:size])

    def of(self, numbers: Any) -> Any:
        """Return the known time of each actor in an array of actor numbers, which must not be
        negative."""
        self._reach(int(numbers.max(initial=-1)) + 1)
        return self._times[numbers]

    def _reach(self, size: int) -> None:
        if size > len(self._times):
            self._times = np.pad(self._times, (0, size - len(self._times)))


def carry_out(traces: Sequence[Sequence[E]], step: Callable[[int, E], bool]) -> list[int]:
    """Replay traces, advancing each in turn as far as possible, and return the number of
    completed events of each. `step`: takes the index of a trace and its next event, and returns
    whether the event can happen yet."""
    at, moved = [0] * len(traces), True
    while moved:
        moved = False
        for number, events in enumerate(traces):
            while at[number] < len(events) and step(number, events[at[number]]):
                at[number] += 1
                moved = True
    return at


class Actor(NamedTuple):
    """An actor at the moment of an access: its number, its time, and its clock."""

    number: int
    time: int
    clock: Clock


class Race(NamedTuple):
    """An access to a byte that is not ordered after another actor's access to it.

    `does`: the verb for this access; `other`: the number of the other actor, -1 if unwritten bytes
    are read; `did`: the verb for the other access; `time`: the time of the other access.
    """

    does: str
    other: int
    did: str
    time: int


class Watched:
    """A range of memory, with the last writer of each byte, the time of that write, and the reads
    since."""

    def __init__(self, name: str, start: int, stop: int, *, written: bool = False) -> None:
        self.name, self.start, self.stop = name, start, stop
        size = stop - start
        self._writer = np.full(size, 0 if written else -1, dtype=np.int32)
        self._time = np.zeros(size, dtype=np.int32)
        self._reads: dict[int, Any] = {}

    def places(self, addresses: Any) -> Any:
        """Return the offsets of `addresses` from the start of the range, omitting addresses outside
        it."""
        inside = (addresses >= self.start) & (addresses < self.stop)
        return (addresses[inside] - np.uint64(self.start)).astype(np.int64)

    def read(self, places: Any, actor: Actor) -> Race | None:
        """Record that an actor reads the bytes at these offsets. Return the race, if any."""
        race = _unordered(self._writer[places], self._time[places], actor, "reads", "writes")
        reads = self._reads.setdefault(actor.number, np.zeros_like(self._time))
        reads[places] = actor.time
        return race

    def write(self, places: Any, actor: Actor) -> Race | None:
        """Record that an actor writes the bytes at these offsets. Return the race, if any."""
        writer, time = self._writer[places], self._time[places]
        written = writer >= 0
        race = _unordered(writer[written], time[written], actor, "writes", "writes")
        for reader, times in self._reads.items():
            last = times[places]
            last = last[last > 0]
            who = np.full(len(last), reader)
            race = race or _unordered(who, last, actor, "overwrites", "reads")
            times[places] = 0
        self._writer[places], self._time[places] = actor.number, actor.time
        return race


def _unordered(others: Any, times: Any, actor: Actor, does: str, did: str) -> Race | None:
    unwritten = others < 0
    known = actor.clock.of(np.where(unwritten, 0, others))
    late = np.flatnonzero(unwritten | (others != actor.number) & (times > known))
    if not len(late):
        return None
    return Race(does, int(others[late[0]]), did, int(times[late[0]]))
