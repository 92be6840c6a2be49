"""The order in which a device visits its tiles."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

WRITTEN_OUT = 16
"""Most rounds that a module lists one by one."""

KNOWN = 1 << 16
"""With more tiles than this, products of two numbers may exceed 32 bits, and tiles keep their
order."""


@dataclass(frozen=True)
class FarApart:
    """Numbers below `count`, in steps of about 0.41 of it.

    Receivers are numbered starting at a device, so simultaneous receivers are far apart and all
    links are busy.
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
        """The numbers in order, as a tuple; "" if too many to write out."""
        if self.count > WRITTEN_OUT:
            return ""
        return str(tuple(place * self._step % self.count for place in range(self.count)))

    @property
    def number(self) -> str:
        """The number at a `place`, as an expression."""
        return "place" if self._step == 1 else f"rem(place * {self._step}, {self.count})"
