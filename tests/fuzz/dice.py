"""Random choices, made from an id alone, and how often what is unusual is among them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Dice(random.Random):
    """Random choices of a case.

    A plain case is usual in all but its shardings: whatever else is drawn too often would hide, by
    failing first or by leaving few axes, what is wrong with the shardings.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"case {number}")
        self.plain = self.random() < 0.35

    def happens(self, share: float) -> bool:
        """True so often."""
        return self.random() < share

    def rarely(self, share: float) -> bool:
        """True so often, and never in a plain case."""
        return self.random() < share and not self.plain

    def some(self, given: Sequence[T], least: int) -> list[T]:
        """At least so many of what is given, in its order."""
        chosen = self.sample(range(len(given)), self.randint(least, len(given)))
        return [given[i] for i in sorted(chosen)]

    def run(self, given: Sequence[T], whole: float = 0.0) -> slice:
        """Some of what is given that stand together; from the first, and to the last, so often."""
        start = 0 if self.happens(whole) else self.randrange(len(given))
        stop = len(given) if self.happens(whole) else self.randint(start + 1, len(given))
        return slice(start, stop)
