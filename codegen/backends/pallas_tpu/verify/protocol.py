"""Check the protocol of an emitted kernel on the events of all devices.

Neither the interpreter nor the compiler detects a missing barrier or a missing wait for a send.

1. Before a device writes to a peer, it has waited for all barrier signals that will ever be sent
   to it, and the peer has sent one of them.
2. Each device waits for exactly its arrivals and its sends, so every semaphore is zero at its
   exit, and no device exits while others still write to it.
3. No two copies write the same element of a result.
4. All devices terminate, in any order of execution.
5. A place that is used again is free by then (`reuse`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from shardwright.codegen.backends.pallas_tpu.verify.events import (
    BARRIER,
    Copy,
    Signal,
    Wait,
    Window,
)
from shardwright.codegen.backends.pallas_tpu.verify.order import Counts, Traces, count
from shardwright.codegen.backends.pallas_tpu.verify.reuse import check_reuse
from shardwright.codegen.checks.clocks import carry_out
from shardwright.codegen.checks.compare import MismatchError

# Buffers in which every copy needs a separate place. Places in other buffers are reused.
RESULTS = ("y", "stage")


def check_protocol(traces: Traces) -> None:
    """Raise MismatchError if the events of the devices, by rank, break a rule of the protocol."""
    _check_barrier(traces)
    _check_balance(traces)
    _check_overlaps(traces)
    _check_progress(traces)
    check_reuse(traces)


def _check_barrier(traces: Traces) -> None:
    signallers: dict[int, Counter[int]] = defaultdict(Counter)
    for rank, events in enumerate(traces):
        for event in events:
            if isinstance(event, Signal) and event.semaphore == BARRIER:
                signallers[event.to][rank] += event.amount
    for rank, events in enumerate(traces):
        waited = 0
        for event in events:
            if isinstance(event, Wait) and event.semaphore == BARRIER:
                waited += event.amount
            if isinstance(event, Copy) and event.to != rank:
                _check_write(rank, event.to, waited, signallers[rank])


def _check_write(rank: int, peer: int, waited: int, signals: Counter[int]) -> None:
    if not signals[peer]:
        raise MismatchError(
            f"barrier: rank {rank} writes into rank {peer} without a signal from it"
        )
    if waited < signals.total():
        raise MismatchError(
            f"barrier: rank {rank} writes into rank {peer} after {waited} of "
            f"{signals.total()} signals"
        )


def _check_balance(traces: Traces) -> None:
    counts: Counter[tuple[int, str]] = Counter()
    for rank, events in enumerate(traces):
        for event in events:
            match event:
                case Signal(semaphore, to, amount):
                    counts[to, semaphore] += amount
                case Wait(semaphore, amount):
                    counts[rank, semaphore] -= amount
                case Copy():
                    counts[event.to, event.received] += event.write.elements
                    if event.sent:
                        counts[rank, event.sent] += event.read.elements
    for (rank, semaphore), left in sorted(counts.items()):
        if left:
            more = "more than it waits for" if left > 0 else "less than it waits for"
            raise MismatchError(f"semaphore {semaphore!r} of rank {rank}: gets {abs(left)} {more}")


def _check_overlaps(traces: Traces) -> None:
    written: dict[tuple[int, str], list[Window]] = defaultdict(list)
    for events in traces:
        for event in events:
            if isinstance(event, Copy) and event.write.buffer in RESULTS:
                written[event.to, event.write.buffer].append(event.write)
    for (rank, buffer), windows in sorted(written.items()):
        pair = _overlapping(windows)
        if pair is not None:
            first, second = (list(window.ranges) for window in pair)
            raise MismatchError(
                f"two copies write the same place of {buffer!r} of rank {rank}: {first} and "
                f"{second}"
            )


def _overlapping(windows: Sequence[Window]) -> tuple[Window, Window] | None:
    full = [window for window in windows if window.elements]
    if len(full) < 2:
        return None
    ranges = np.array([window.ranges for window in full], dtype=np.int64)
    low, high = ranges[:, :, 0], ranges[:, :, 0] + ranges[:, :, 1]
    for row in range(len(full) - 1):
        rest = slice(row + 1, None)
        shared = np.minimum(high[row], high[rest]) > np.maximum(low[row], low[rest])
        hits = np.flatnonzero(shared.all(axis=1))
        if hits.size:
            return full[row], full[row + 1 + int(hits[0])]
    return None


def _check_progress(traces: Traces) -> None:
    """Check that all devices terminate. It suffices to try one order: devices only raise the
    semaphores of others, so a wait that can end in one order can end in all."""
    counts = Counts()
    ends = carry_out(traces, lambda rank, event: count(counts, rank, event))
    for rank, (end, events) in enumerate(zip(ends, traces, strict=True)):
        if end < len(events):
            raise MismatchError(f"deadlock: rank {rank} never gets past {events[end]}")
