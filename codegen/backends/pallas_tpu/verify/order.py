"""One order in which devices can carry out the events of a kernel, copies landing at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from shardwright.codegen.backends.pallas_tpu.verify.trace import (
    Combine,
    Copy,
    Event,
    Signal,
    Wait,
)

Traces = Sequence[tuple[Event, ...]]
"""The events of every device, by rank."""

Counts = Counter[tuple[int, str]]
"""What every semaphore of every rank is at."""


def carry_out(traces: Traces, step: Callable[[int, Event], bool]) -> list[int]:
    """Call `step` with ranks and their next events, each device as far as it comes at a time; it
    says whether the event can be carried out yet. How many events each device got through."""
    at, moved = [0] * len(traces), True
    while moved:
        moved = False
        for rank, events in enumerate(traces):
            while at[rank] < len(events) and step(rank, events[at[rank]]):
                at[rank] += 1
                moved = True
    return at


def count(counts: Counts, rank: int, event: Event) -> bool:
    """Carry out an event on the semaphores if it can be; whether it was."""
    match event:
        case Signal(semaphore, to, amount):
            counts[to, semaphore] += amount
        case Copy():
            counts[event.to, event.received] += event.write.elements
            counts[rank, event.sent] += event.read.elements
        case Combine():
            pass
        case Wait(semaphore, amount):
            if counts[rank, semaphore] < amount:
                return False
            counts[rank, semaphore] -= amount
    return True
