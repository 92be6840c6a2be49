"""Check, from the devices' events, that a place is free before a kernel uses it again.

A copy reads its source from its start until its device has waited for all its sends, and writes its
destination from its start until the receiver has waited for all its arrivals. If either of two uses
of a place is a write, the device that starts the second must know that the first has ended. Devices
learn this through semaphores: like race detectors, this check keeps vector clocks along one
possible order of events.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from shardwright.codegen.backends.pallas_tpu.verify.events import (
    Combine,
    Copy,
    Signal,
    Wait,
    Window,
)
from shardwright.codegen.backends.pallas_tpu.verify.order import Traces
from shardwright.codegen.backends.pallas_tpu.verify.trace import Event
from shardwright.codegen.checks.clocks import carry_out
from shardwright.codegen.checks.compare import MismatchError
from shardwright.ir.algebra.index import Integers

PRIVATE = ("windows", "chunks")
"""The buffers whose places are used repeatedly, but only by their own device."""
REUSED = (*PRIVATE, "slots", "sums", "terms", "a_blocks", "b_blocks", "made", "inbox", "c")
"""The buffers whose places any device may use repeatedly."""
RESULT = "y"
"""The buffer of results. It counts as reused if devices forward data from it."""

Semaphore = tuple[int, str]


@dataclass
class _Use:
    """A read or write of a window of device `by`, started by device `starter`. `end`: the clock of
    device `by` when the use ends, or None while it may continue."""

    window: Window
    writes: bool
    starter: int
    by: int
    end: int | None = None


@dataclass
class _Semaphore:
    """A semaphore. `knows`: the merged vector clock of all devices that raised it; `count`: its
    value; `uses`: the uses that have ended once a device has waited for the whole count."""

    knows: Integers
    count: int = 0
    uses: list[_Use] = field(default_factory=list)


def check_reuse(traces: Traces) -> None:
    """Raise MismatchError if a device uses a place while a conflicting use may not have ended. The
    events must be able to terminate, which `protocol` checks first."""
    copies = (event for own in traces for event in own if isinstance(event, Copy))
    reads_result = any(copy.read.buffer == RESULT for copy in copies)
    carry_out(traces, _Run(len(traces), reads_result=reads_result).step)


class _Run:
    """Execute the events in one order. A copy completes as soon as it starts, but no device knows
    so before it waits. `clocks`: the vector clock of each device; `uses`: the uses of each device's
    buffers."""

    def __init__(self, devices: int, *, reads_result: bool) -> None:
        self.clocks = np.zeros((devices, devices), dtype=np.int64)
        self.semaphores: dict[Semaphore, _Semaphore] = defaultdict(
            lambda: _Semaphore(np.zeros(devices, dtype=np.int64))
        )
        self.uses: dict[tuple[int, str], list[_Use]] = defaultdict(list)
        self.reused = REUSED if not reads_result else (*REUSED, RESULT)

    def step(self, rank: int, event: Event) -> bool:
        """Apply a device's event. Return False, and change nothing, for a wait that cannot end
        yet."""
        if isinstance(event, Wait) and self.semaphores[rank, event.semaphore].count < event.amount:
            return False
        self.clocks[rank, rank] += 1
        match event:
            case Signal(semaphore, to, amount):
                self._raise((to, semaphore), rank, amount)
            case Copy():
                self._copy(rank, event)
            case Wait(semaphore, amount):
                self._wait(rank, self.semaphores[rank, semaphore], amount)
            case Combine(into, of):
                for each in of:
                    self._at_once(rank, each, writes=False)
                self._at_once(rank, into, writes=True)
        return True

    def _raise(self, name: Semaphore, rank: int, amount: int) -> _Semaphore:
        semaphore = self.semaphores[name]
        semaphore.count += amount
        semaphore.knows = np.maximum(semaphore.knows, self.clocks[rank])
        return semaphore

    def _copy(self, rank: int, copy: Copy) -> None:
        received = self._raise((copy.to, copy.received), rank, copy.write.elements)
        sent = received  # a copy within a device has only one semaphore
        if copy.sent:
            sent = self._raise((rank, copy.sent), rank, copy.read.elements)
        self._use(rank, _Use(copy.read, False, rank, rank), sent)
        self._use(rank, _Use(copy.write, True, rank, copy.to), received)

    def _at_once(self, rank: int, window: Window, *, writes: bool) -> None:
        """Record a computation's use of a window, which ends before the device continues."""
        self._use(rank, _Use(window, writes, rank, rank, int(self.clocks[rank, rank])), None)

    def _use(self, rank: int, use: _Use, semaphore: _Semaphore | None) -> None:
        if use.window.buffer not in self.reused:
            return
        earlier = self.uses[use.by, use.window.buffer]
        for other in earlier:
            ended = other.end is not None and other.end <= self.clocks[rank, other.by]
            shared = (use.writes or other.writes) and _overlap(use.window, other.window)
            if shared and not ended:
                raise MismatchError(_said(rank, use, other))
        if use.window.buffer in PRIVATE:
            earlier[:] = [other for other in earlier if other.end is None]
        earlier.append(use)
        if semaphore is not None:
            semaphore.uses.append(use)

    def _wait(self, rank: int, semaphore: _Semaphore, amount: int) -> None:
        semaphore.count -= amount
        self.clocks[rank] = np.maximum(self.clocks[rank], semaphore.knows)
        if semaphore.count == 0:
            for use in semaphore.uses:
                use.end = int(self.clocks[rank, rank])
            semaphore.uses = []


def _overlap(a: Window, b: Window) -> bool:
    return all(
        start < other + extent and other < start + size
        for (start, size), (other, extent) in zip(a.ranges, b.ranges, strict=True)
    )


def _said(rank: int, use: _Use, other: _Use) -> str:
    does, did = ("writes" if each.writes else "reads" for each in (use, other))
    place = [start for start, _ in use.window.ranges]
    return (
        f"rank {rank} {does} {use.window.buffer!r} of rank {use.by} at {place} while rank "
        f"{other.starter} {did} there"
    )
