"""The protocol of a reshard in two halves: starts, ends and whole kernels in sequence.

Between a start and its end a device may start again, and run kernels that use the same barrier
semaphore. A peer must have begun a call before it is written to in that call, whatever the others
do. The same holds for successive whole kernels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from shardwright.codegen.backends.pallas_tpu.verify.order import Counts, Traces, count
from shardwright.codegen.backends.pallas_tpu.verify.trace import (
    BARRIER,
    Copy,
    Event,
    Signal,
    Wait,
)
from shardwright.codegen.checks.clocks import carry_out
from shardwright.codegen.checks.compare import MismatchError

HEARD = "heard"
"""The semaphore of starts by which devices learn that their signal arrived."""

FEW = 64
"""With more devices than this, only some are held back."""


@dataclass(frozen=True)
class HalvesTraces:
    """The events of all devices, by rank, in a start, in its end and in a whole kernel."""

    starts: Traces
    ends: Traces
    wholes: Traces

    def calls(self) -> tuple[tuple[int, Traces], ...]:
        """Return calls in a permitted order, each with its transfer's number: two starts, the end
        of the second, a whole one, and the end of the first."""
        halves = (0, self.starts), (1, self.starts), (1, self.ends), (2, self.wholes)
        return (*halves, (0, self.ends))


def check_halves(calls: Sequence[tuple[int, Traces]]) -> None:
    """Raise MismatchError if calls, in this order on every device, do not end, leave a nonzero
    semaphore, or write to a device that has not begun the call. Each has its transfer's number."""
    named = [(number, [_numbered(own, number) for own in traces]) for number, traces in calls]
    devices = len(named[0][1])
    whole = [_joined(named, rank) for rank in range(devices)]
    _check_end(whole)
    for rank in range(0, devices, -(-devices // FEW)):
        begun: set[int] = set()
        for place, (number, _) in enumerate(named):
            if number not in begun:
                _check_held(whole, rank, number, _joined(named[:place], rank))
            begun.add(number)


def _joined(calls: Sequence[tuple[int, list[tuple[Event, ...]]]], rank: int) -> tuple[Event, ...]:
    return tuple(event for _, traces in calls for event in traces[rank])


def _numbered(events: Sequence[Event], number: int) -> tuple[Event, ...]:
    """Return events with copy semaphores numbered by call."""
    return tuple(_own(event, number) for event in events)


def _own(event: Event, number: int) -> Event:
    match event:
        case Copy(sent=sent, received=received):
            return replace(event, sent=sent and f"{sent} {number}", received=f"{received} {number}")
        case Wait(semaphore=name) | Signal(semaphore=name) if name not in (BARRIER, HEARD):
            return replace(event, semaphore=f"{name} {number}")
        case _:
            return event


def _check_end(traces: Traces) -> None:
    counts: Counts = Counter()
    ends = carry_out(traces, lambda rank, event: count(counts, rank, event))
    for rank, (end, events) in enumerate(zip(ends, traces, strict=True)):
        if end < len(events):
            raise MismatchError(f"halves: rank {rank} never gets past {events[end]}")
    for (rank, semaphore), left in sorted(counts.items()):
        if left and semaphore:
            raise MismatchError(f"halves: semaphore {semaphore!r} of rank {rank} is left at {left}")


def _check_held(traces: Traces, held: int, number: int, before: tuple[Event, ...]) -> None:
    """Check that a device receives nothing of a call before it begins the call."""
    counts: Counts = Counter()

    def step(rank: int, event: Event) -> bool:
        writes = isinstance(event, Copy) and event.to == held and rank != held
        if isinstance(event, Copy) and writes and event.received.endswith(f" {number}"):
            raise MismatchError(
                f"halves: rank {rank} writes into rank {held}, which has not begun that call"
            )
        return count(counts, rank, event)

    carry_out([before if rank == held else own for rank, own in enumerate(traces)], step)
