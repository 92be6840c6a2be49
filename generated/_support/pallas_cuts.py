"""Tiles cut into pieces, so that several holders of a tile share the work of sending it."""

from collections.abc import Callable
from typing import NamedTuple

from .pallas_integers import maximum


class Pieces(NamedTuple):
    """The division of tiles along dimension `dim` into `pieces` pieces that start at multiples
    of `unit`. `range_of(width, piece)` returns the range of a piece within a tile's width."""

    pieces: int
    dim: int
    unit: int
    range_of: Callable

    def part(self, box, piece):
        """Return the box of a piece of a tile."""
        dim, (low, high) = self.dim, box[2 * self.dim : 2 * self.dim + 2]
        start, end = self.range_of(maximum(high - low, 0), piece)
        return (*box[: 2 * dim], low + start, low + end, *box[2 * dim + 2 :])
