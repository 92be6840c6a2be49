"""The events of a traced kernel: signals, waits, copies and sums."""

from __future__ import annotations

import math
from dataclasses import dataclass

from shardwright.codegen.checks.compare import MismatchError

BARRIER = "barrier"


@dataclass(frozen=True)
class Signal:
    """A device adds `amount` to a semaphore of device `to`."""

    semaphore: str
    to: int
    amount: int


@dataclass(frozen=True)
class Wait:
    """A device waits until its own semaphore is at least `amount`, and subtracts it."""

    semaphore: str
    amount: int


@dataclass(frozen=True)
class Window:
    """A box of a buffer. `ranges`: its (start, size) along each dimension; `shape`: the buffer's
    shape in memory."""

    buffer: str
    ranges: tuple[tuple[int, int], ...]
    shape: tuple[int, ...]

    def checked(self) -> Window:
        """Return this window. Raises MismatchError if it is not inside its buffer."""
        for (start, size), extent in zip(self.ranges, self.shape, strict=True):
            if start < 0 or size < 0 or start + size > extent:
                raise MismatchError(
                    f"window outside its buffer: {self.buffer}{list(self.ranges)} "
                    f"of {list(self.shape)}"
                )
        return self

    @property
    def elements(self) -> int:
        return math.prod(size for _, size in self.ranges)


@dataclass(frozen=True)
class Copy:
    """A device starts a copy to device `to`. `sent`, `received`: the semaphores, of this device and
    of `to`, that count the copy's elements; `sent` is "" for a copy within the device."""

    read: Window
    write: Window
    to: int
    sent: str
    received: str


@dataclass(frozen=True)
class Combine:
    """A device combines the windows `of` with an operator and writes the result to the window
    `into`."""

    into: Window
    of: tuple[Window, ...]
    operator: str = "sum"
