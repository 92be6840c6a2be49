"""Raise an error for faults that JAX's TPU interpreter only prints: races, and semaphores that are
nonzero at the end of a kernel.

A wait that never ends is an error too. Imported only by workers, whose file descriptors 1 and 2 are
a file that can be read back.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
from jax._src import callback as callbacks
from jax._src.pallas.mosaic.interpret import interpret_pallas_call as interpret
from jax._src.pallas.mosaic.interpret.shared_memory import Semaphore

from shardwright.codegen.checks.compare import MismatchError

STUCK = 3.0
"""How long no event may occur while all devices wait, in seconds; after that, it is a deadlock."""

PATIENCE = 60.0
"""How long no event may occur while some device may still compute, in seconds; after that, it is a
deadlock."""

_TICK = 0.5


@contextmanager
def observed() -> Iterator[None]:
    """Watch the interpreted kernels that run in this context. Raises MismatchError if the
    interpreter prints a fault or if a wait never ends."""
    interpret.reset_tpu_interpret_mode_state()
    start = _printed_size()
    with _Watchdog() as watchdog, patch.object(callbacks, "io_callback_impl", _called):
        try:
            yield
        except Exception as error:
            if watchdog.verdict:
                raise MismatchError(watchdog.verdict, fresh=True) from None
            raise error
    printed = os.pread(1, _printed_size() - start, start).decode(errors="replace")
    left = re.search(r"Semaphore \d+ has non-zero count .*? at kernel exit: -?\d+", printed)
    if left or "non-zero count" in printed:
        raise MismatchError(left[0] if left else printed.strip())
    if "RACE DETECTED" in printed or (interpret.races and interpret.races.races_found):
        raise MismatchError(f"race: {_race(printed)}")


def _called(*args: Any, callback: Callable[..., Any], **_: Any) -> Any:
    """Call `callback` with numpy arrays. This replaces JAX's own implementation, which copies each
    array to a device and back; these copies take more than half of the time of a run."""
    return tuple(map(np.asarray, callback(*map(np.array, args))))


def _printed_size() -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    return os.fstat(1).st_size


def _race(printed: str) -> str:
    lines = printed.partition("RACE DETECTED")[2].splitlines()
    words = (line.split(" from ")[0].strip() for line in lines if "clock:" not in line)
    return " against ".join([word for word in words if word][:2])


class _Watchdog:
    """Fail a kernel that makes no progress. `verdict` then names a wait that never ends."""

    def __init__(self) -> None:
        self.verdict = ""
        self._events = 0
        self._waiting: dict[int, _Wait] = {}
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _Watchdog:
        self._patches = ExitStack()
        for name, counted in (("wait", self._counted_wait), ("signal", self._counted_signal)):
            replacement = counted(getattr(Semaphore, name))
            self._patches.enter_context(patch.object(Semaphore, name, replacement))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self._patches.close()

    def _counted_wait(self, original: Callable[..., None]) -> Callable[..., None]:
        def wait(semaphore: Any, value: int, core: int, **kwargs: Any) -> None:
            with self._lock:
                self._events += 1
                self._waiting[threading.get_ident()] = _Wait(semaphore, int(value), int(core))
            try:
                original(semaphore, value, core, **kwargs)
            finally:
                with self._lock:
                    self._events += 1
                    del self._waiting[threading.get_ident()]

        return wait

    def _counted_signal(self, original: Callable[..., None]) -> Callable[..., None]:
        def signal(*args: Any, **kwargs: Any) -> None:
            with self._lock:
                self._events += 1
            original(*args, **kwargs)

        return signal

    def _watch(self) -> None:
        seen, idle = -1, 0.0
        while not self._done.wait(_TICK):
            with self._lock:
                idle = idle + _TICK if self._waiting and self._events == seen else 0.0
                seen = self._events
                waits = sorted(self._waiting.values(), key=lambda wait: wait.core)
            if idle >= (STUCK if _all_blocked(waits) else PATIENCE):
                self._fail(waits)
                break
        # Other devices may already wait for each other in the next kernel, which the failed device
        # never enters: release them too.
        while not self._done.wait(_TICK):
            memory = interpret._shared_memory
            if memory is not None:
                memory.barrier.abort()
                memory.clean_up_barrier.abort()

    def _fail(self, waits: Sequence[_Wait]) -> None:
        """Mark the interpreter's shared memory as failed, so that every waiting device raises."""
        first = waits[0]
        self.verdict = (
            f"a wait that never ends: core {first.core} waits for {first.value} of semaphore "
            f"{first.semaphore.id}, which stands at {first.semaphore.read(first.core)} "
            f"(cores that wait: {len(waits)})"
        )
        memory = first.semaphore.shared_memory
        memory.set_failed(TimeoutError(self.verdict), top_level=False)


@dataclass(frozen=True)
class _Wait:
    """A wait of `core` until the interpreter's `semaphore` reaches `value`."""

    semaphore: Any
    value: int
    core: int

    def blocked(self) -> bool:
        low: bool = self.semaphore.count_by_core[self.core] < self.value
        return low and not self.semaphore.tasks[self.core]


def _all_blocked(waits: Sequence[_Wait]) -> bool:
    """Return whether every core is blocked in a wait, is waiting at a barrier, or has ended."""
    if not waits:
        return False
    memory = waits[0].semaphore.shared_memory
    idle = len(waits) + memory.clean_up_barrier.n_waiting + memory.barrier.n_waiting
    return idle >= memory.num_cores and all(wait.blocked() for wait in waits)
