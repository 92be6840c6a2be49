"""The effects of a kernel's events on semaphores, assuming that every copy completes as soon as it
starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from shardwright.codegen.backends.pallas_tpu.verify.events import Combine, Copy, Signal, Wait
from shardwright.codegen.backends.pallas_tpu.verify.trace import Event

Traces = Sequence[tuple[Event, ...]]
"""The events of every device, by rank."""

Counts = Counter[tuple[int, str]]
"""The value of every semaphore, by (rank, name)."""


def count(counts: Counts, rank: int, event: Event) -> bool:
    """Apply a device's event to the semaphores. Return False, and change nothing, for a wait that
    cannot end yet."""
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
