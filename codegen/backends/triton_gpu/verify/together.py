"""Threads of which one runs at a time, until it waits for another. In a worker only.

So the order in which they do things is the same in every run, and it is seen when all wait.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Hashable
from typing import Any


class StuckError(BaseException):
    """Every thread that has not ended waits for another one.

    No Exception: nobody is to handle it but the one who started the threads.
    """


class Together:
    """So many threads, by number, and what they give one another, by name. Each calls `enter`
    before anything else, and `leave` in the end."""

    def __init__(self, count: int) -> None:
        self._turns = [threading.Semaphore(number == 0) for number in range(count)]
        self._alive, self._stuck = list(range(count)), False
        self._waits: dict[int, Callable[[], bool]] = {}
        self._given: dict[Hashable, dict[int, Any]] = defaultdict(dict)

    def enter(self, number: int) -> None:
        """Wait for the first turn of a thread."""
        self._turns[number].acquire()

    def leave(self, number: int) -> None:
        """Be gone: others wait for this thread in vain."""
        self._alive.remove(number)
        self._pass_on(number)

    def give(self, name: Hashable, number: int, value: Any) -> None:
        """Give a value to those that take it; `number`: that of the thread."""
        self._given[name][number] = value

    def take(self, name: Hashable, number: int, giver: int) -> Any:
        """Return what another thread gives by this name, once it is there. Raises StuckError."""
        self._wait(number, lambda: giver in self._given[name])
        return self._given[name][giver]

    def all_gather(self, name: Hashable, number: int, value: Any) -> list[Any]:
        """Return what all threads give by this name, once it is there. Raises StuckError."""
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
        """Let the next thread run that can; where none can, all of them, to be told."""
        count = len(self._turns)
        for other in sorted(self._alive, key=lambda each: (each - number - 1) % count):
            if other not in self._waits or self._waits[other]():
                self._turns[other].release()
                return
        self._stuck = True
        for other in self._alive:
            self._turns[other].release()
