"""The statements that assemble a shard from boxes that arrive as one array, in the fewest
passes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Join:
    """Windows of one shape that tile a shard, in a row-major grid.

    `grid`: the number of windows along each dimension; `window`: the shape of a window; `shape`:
    the shape of the shard; `axis`: the dimension of the array that counts the windows. If the grid
    is one-dimensional, windows are stacked along its dimension, so that a reshape joins them.
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
        """The statement that drops elements beyond the shard's end, or nothing if there are
        none."""
        ends = ", ".join(f":{size}" for size in self.shape)
        return (f"y = y[{ends}]",) if self._full != self.shape else ()

    @property
    def lines(self) -> tuple[str, ...]:
        """The statements that compute the shard `y` from an array `y` whose windows are counted
        along `axis`."""
        return self._lines(interleaves=len(self._split) > 1)

    @property
    def lines_of_rows(self) -> tuple[str, ...]:
        """The statements that compute the shard `y` from windows stacked along their first
        dimension."""
        return self._lines(interleaves=self._split not in ((), (0,)))

    def _lines(self, *, interleaves: bool) -> tuple[str, ...]:
        lines = [f"y = y.reshape({_listed(self._full)})"]
        if interleaves:
            parts, order = self._interleaved()
            lines = [f"y = y.reshape({_listed(parts)}).transpose({_listed(order)})", *lines]
        return (*lines, *self.cut)

    def _interleaved(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        parts = (*(self.grid[axis] for axis in self._split), *self.window)
        order = []
        for axis in range(len(self.window)):
            if axis in self._split:
                order.append(self._split.index(axis))
            order.append(len(self._split) + axis)
        return parts, tuple(order)


def _listed(sizes: tuple[int, ...]) -> str:
    return ", ".join(map(str, sizes))
