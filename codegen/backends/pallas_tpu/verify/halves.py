"""Check the protocol of a reshard in two halves, a start and an end, and of successive calls.

Between a start and its end, a device may start a second reshard, and run whole kernels that use the
same barrier semaphore. However slow a device is, no other device may write to it for a call that it
has not begun. The same holds for successive calls of a whole kernel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from shardwright.codegen.backends.pallas_tpu.verify.events import BARRIER, Copy, Signal, Wait
from shardwright.codegen.backends.pallas_tpu.verify.order import Counts, Traces, count
from shardwright.codegen.backends.pallas_tpu.verify.trace import Event
from shardwright.codegen.checks.clocks import carry_out
from shardwright.codegen.checks.compare import MismatchError

HEARD = "heard"
"""The semaphore of starting kernels that confirms the arrival of a device's signal."""

FEW = 64
"""The most devices that are all delayed in turn; beyond it, only some are."""


@dataclass(frozen=True)
class HalvesTraces:
    """The events of all devices, by rank: in the kernel that starts a transfer, in the kernel that
    ends it, and in the kernel that does both."""

    starts: Traces
    ends: Traces
    wholes: Traces

    def calls(self) -> tuple[tuple[int, Traces], ...]:
        """Return calls in an order that callers may use, each with the number of its transfer: two
        starts, the end of the second, a whole kernel, and the end of the first."""
        halves = (0, self.starts), (1, self.starts), (1, self.ends), (2, self.wholes)
        return (*halves, (0, self.ends))


def check_halves(calls: Sequence[tuple[int, Traces]]) -> None:
    """Raise MismatchError if calls, made in this order by every device, do not terminate, leave a
    semaphore nonzero, or write to a device that has not begun the call. `calls`: the number of each
    call's transfer, and its events."""
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
    """Append the transfer's number to the names of the events' semaphores, except semaphores that
    all calls share."""
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
            raise MismatchError(
                f"halves: semaphore {semaphore!r} of rank {rank} ends at {left}, expected: 0"
            )


def _check_held(traces: Traces, held: int, number: int, before: tuple[Event, ...]) -> None:
    """Check that no copy of transfer `number` is written to device `held` while that device makes
    only the events `before` the call."""
    counts: Counts = Counter()

    def step(rank: int, event: Event) -> bool:
        writes = isinstance(event, Copy) and event.to == held and rank != held
        if isinstance(event, Copy) and writes and event.received.endswith(f" {number}"):
            raise MismatchError(
                f"halves: rank {rank} writes into rank {held}, which has not begun that call"
            )
        return count(counts, rank, event)

    carry_out([before if rank == held else own for rank, own in enumerate(traces)], step)
