"""Threads that run one at a time, until one waits for another. Used in workers only.

So their order is the same in every run, and a deadlock is detected.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Hashable
from typing import Any


class StuckError(BaseException):
    """Every running thread waits for another one.

    It is not an Exception: only the code that started the threads should handle it.
    """


class Together:
    """Numbered threads, and the values they exchange, by name. Each calls `enter` first, and
    `leave` at the end."""

    def __init__(self, count: int) -> None:
        self._turns = [threading.Semaphore(number == 0) for number in range(count)]
        self._alive, self._stuck = list(range(count)), False
        self._waits: dict[int, Callable[[], bool]] = {}
        self._given: dict[Hashable, dict[int, Any]] = defaultdict(dict)

    def enter(self, number: int) -> None:
        """Wait for the thread's first turn."""
        self._turns[number].acquire()

    def leave(self, number: int) -> None:
        """Leave; others that wait for this thread then fail."""
        self._alive.remove(number)
        self._pass_on(number)

    def give(self, name: Hashable, number: int, value: Any) -> None:
        """Give a value to its takers; `number`: the giver's."""
        self._given[name][number] = value

    def take(self, name: Hashable, number: int, giver: int) -> Any:
        """Return another thread's value of this name, once it is there. Raises StuckError."""
        self._wait(number, lambda: giver in self._given[name])
        return self._given[name][giver]

    def all_gather(self, name: Hashable, number: int, value: Any) -> list[Any]:
        """Return all threads' values of this name, once they are there. Raises StuckError."""
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
        """Let the next thread run that can; if none can, wake all to report it."""
        count = len(self._turns)
        for other in sorted(self._alive, key=lambda each: (each - number - 1) % count):
            if other not in self._waits or self._waits[other]():
                self._turns[other].release()
                return
        self._stuck = True
        for other in self._alive:
            self._turns[other].release()
