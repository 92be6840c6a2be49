"""Run threads one at a time, each until it waits for another. Imported only by workers.

The order of threads is therefore the same in every run, and a deadlock is detected.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Hashable
from typing import Any


class StuckError(BaseException):
    """Raised in every thread if all running threads wait for each other.

    It is not an Exception, so that only the code that started the threads handles it.
    """


class Together:
    """Numbered threads that run one at a time, and the values that they exchange, by name. Each
    thread calls `enter` first and `leave` last."""

    def __init__(self, count: int) -> None:
        self._turns = [threading.Semaphore(number == 0) for number in range(count)]
        self._alive, self._stuck = list(range(count)), False
        self._waits: dict[int, Callable[[], bool]] = {}
        self._given: dict[Hashable, dict[int, Any]] = defaultdict(dict)

    def enter(self, number: int) -> None:
        """Wait for the thread's first turn."""
        self._turns[number].acquire()

    def leave(self, number: int) -> None:
        """End a thread's turns. Threads that still wait for one of this thread's values then
        fail."""
        self._alive.remove(number)
        self._pass_on(number)

    def give(self, name: Hashable, number: int, value: Any) -> None:
        """Publish a value of thread `number` under a name."""
        self._given[name][number] = value

    def take(self, name: Hashable, number: int, giver: int) -> Any:
        """Wait for the value that thread `giver` publishes under this name, and return it;
        `number`: the thread that waits. Raises StuckError for a deadlock."""
        self._wait(number, lambda: giver in self._given[name])
        return self._given[name][giver]

    def all_gather(self, name: Hashable, number: int, value: Any) -> list[Any]:
        """Publish a value of thread `number`, wait for all threads' values of this name, and return
        them by thread. Raises StuckError for a deadlock."""
        self.give(name, number, value)
        self._wait(number, lambda: len(self._given[name]) == len(self._turns))
        return [self._given[name][each] for each in range(len(self._turns))]

    def _wait(self, number: int, is_there: Callable[[], bool]) -> None:
        if is_there():
            return
        self._waits[number] = is_there
        self._pass_on(number)
        self._turns[number].acquire()
        if self._stuck:
            raise StuckError
        del self._waits[number]

    def _pass_on(self, number: int) -> None:
        """Let the next thread that need not wait run. If there is none, wake all threads, so that
        they raise StuckError."""
        count = len(self._turns)
        for other in sorted(self._alive, key=lambda each: (each - number - 1) % count):
            if other not in self._waits or self._waits[other]():
                self._turns[other].release()
                return
        self._stuck = True
        for other in self._alive:
            self._turns[other].release()
