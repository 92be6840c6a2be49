"""Order of events by vector clocks, and races on bytes.

Each actor has a number, an increasing time, and a clock: for every other actor, the time up to
which it knows all of that actor's events. Two uses of a byte, at least one of them a write, are a
race unless one actor knows of the other's use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

E = TypeVar("E")


class Clock:
    """For each actor, the time up to which all its events are known to have happened; 0 for
    none."""

    def __init__(self) -> None:
        self._times = np.zeros(0, dtype=np.int64)

    def copy(self) -> Clock:
        """Return an independent copy."""
        other = Clock()
        other._times = self._times.copy()
        return other

    def know(self, number: int, time: int) -> None:
        """Learn of all events of one actor up to a time."""
        self._reach(number + 1)
        self._times[number] = max(time, self._times[number])

    def join(self, other: Clock) -> None:
        """Learn everything that another clock knows."""
        size = len(other._times)
        self._reach(size)
        np.maximum(self._times[:size], other._times, out=self._times[:size])

    def of(self, numbers: Any) -> Any:
        """Return the known times of non-negative actor numbers."""
        self._reach(int(numbers.max(initial=-1)) + 1)
        return self._times[numbers]

    def _reach(self, size: int) -> None:
        """Make room for numbers below `size`."""
        if size > len(self._times):
            self._times = np.pad(self._times, (0, size - len(self._times)))


def carry_out(traces: Sequence[Sequence[E]], step: Callable[[int, E], bool]) -> list[int]:
    """Replay traces: call `step` with the index of a trace and its next event, advancing each trace
    as far as possible in turn; `step` returns whether the event can happen yet. Return how many
    events each trace completed."""
    at, moved = [0] * len(traces), True
    while moved:
        moved = False
        for number, events in enumerate(traces):
            while at[number] < len(events) and step(number, events[at[number]]):
                at[number] += 1
                moved = True
    return at


class Actor(NamedTuple):
    """A user of bytes: its number, its time, and its knowledge."""

    number: int
    time: int
    clock: Clock


class Race(NamedTuple):
    """A use not ordered after another actor's use at a time; `other` is -1 if unwritten bytes are
    read."""

    does: str
    other: int
    did: str
    time: int


class Watched:
    """Watched memory: the last writer of each byte and its time, and later readers."""

    def __init__(self, name: str, start: int, stop: int, *, written: bool = False) -> None:
        self.name, self.start, self.stop = name, start, stop
        size = stop - start
        self._writer = np.full(size, 0 if written else -1, dtype=np.int32)
        self._time = np.zeros(size, dtype=np.int32)
        self._reads: dict[int, Any] = {}

    def places(self, addresses: Any) -> Any:
        """Return the offsets of addresses within the watched bytes."""
        inside = (addresses >= self.start) & (addresses < self.stop)
        return (addresses[inside] - np.uint64(self.start)).astype(np.int64)

    def read(self, places: Any, actor: Actor) -> Race | None:
        """Record a read of bytes, and return a race if there is one."""
        race = _unordered(self._writer[places], self._time[places], actor, "reads", "writes")
        reads = self._reads.setdefault(actor.number, np.zeros_like(self._time))
        reads[places] = actor.time
        return race

    def write(self, places: Any, actor: Actor) -> Race | None:
        """Record a write of bytes, and return a race if there is one."""
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
    """Return the race, if any, with another actor's use that this actor does not know of."""
    unwritten = others < 0
    known = actor.clock.of(np.where(unwritten, 0, others))
    late = np.flatnonzero(unwritten | (others != actor.number) & (times > known))
    if not len(late):
        return None
    return Race(does, int(others[late[0]]), did, int(times[late[0]]))
