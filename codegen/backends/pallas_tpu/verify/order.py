"""Effects of a kernel's events on semaphores, with copies landing at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

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
"""The count of every semaphore of every rank."""


def count(counts: Counts, rank: int, event: Event) -> bool:
    """Apply an event to the semaphores if possible, and return whether it was."""
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
