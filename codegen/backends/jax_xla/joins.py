"""How the boxes that arrive as one array become a shard, in as few passes over it as can be."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Join:
    """Windows of one shape, row-major in a grid, that make up a shard of a shape.

    `axis`: where the array has the axis that numbers the windows. Where the grid has one dimension
    that is where they lie one after the other, so that a reshape joins them.
    """

    grid: tuple[int, ...]
    window: tuple[int, ...]
    shape: tuple[int, ...]

    @cached_property
    def _split(self) -> tuple[int, ...]:
        return tuple(axis for axis, count in enumerate(self.grid) if count > 1)

    @property
    def axis(self) -> int:
        return self._split[0] if len(self._split) == 1 else 0

    @cached_property
    def _full(self) -> tuple[int, ...]:
        return tuple(map(math.prod, zip(self.grid, self.window, strict=True)))

    @property
    def cut(self) -> tuple[str, ...]:
        """A statement that takes what is beyond the shard away, if anything is."""
        ends = ", ".join(f":{size}" for size in self.shape)
        return (f"y = y[{ends}]",) if self._full != self.shape else ()

    @property
    def lines(self) -> tuple[str, ...]:
        """Statements that make the shard `y` of the array `y` with an axis that numbers windows."""
        return self._lines(interleaves=len(self._split) > 1)

    @property
    def lines_of_rows(self) -> tuple[str, ...]:
        """The same of an array of the windows one after the other along their first dimension."""
        return self._lines(interleaves=self._split not in ((), (0,)))

    def _lines(self, *, interleaves: bool) -> tuple[str, ...]:
        lines = [f"y = y.reshape({_listed(self._full)})"]
        if interleaves:
            parts, order = self._interleaved()
            lines = [f"y = y.reshape({_listed(parts)}).transpose({_listed(order)})", *lines]
        return (*lines, *self.cut)

    def _interleaved(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the grid before the window, and the order in which each dimension's two are
        together."""
        parts = (*(self.grid[axis] for axis in self._split), *self.window)
        order = []
        for axis in range(len(self.window)):
            if axis in self._split:
                order.append(self._split.index(axis))
            order.append(len(self._split) + axis)
        return parts, tuple(order)


def _listed(sizes: tuple[int, ...]) -> str:
    return ", ".join(map(str, sizes))
