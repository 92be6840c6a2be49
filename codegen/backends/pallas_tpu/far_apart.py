"""The order in which a device sends its tiles."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

WRITTEN_OUT = 16
"""The most numbers that a module lists one by one."""

KNOWN = 1 << 16
"""The largest number of tiles to reorder. Above it, products may exceed 32 bits."""


@dataclass(frozen=True)
class FarApart:
    """Visit the numbers below `count` in steps of about 0.41 `count`, modulo `count`.

    A device counts receivers from itself. Large steps keep the receivers of simultaneous sends far
    apart, so that all links are busy.
    """

    count: int

    @property
    def _step(self) -> int:
        if self.count > KNOWN:
            return 1
        steps = itertools.count(max(round(0.41 * self.count), 1))
        return next(step for step in steps if math.gcd(step, self.count) == 1)

    @property
    def listed(self) -> str:
        """The numbers in the order of visits, as the text of a tuple, or "" if there are too many
        to list."""
        if self.count > WRITTEN_OUT:
            return ""
        return str(tuple(place * self._step % self.count for place in range(self.count)))

    @property
    def number(self) -> str:
        """The number visited at step `place`, as an expression."""
        return "place" if self._step == 1 else f"rem(place * {self._step}, {self.count})"
