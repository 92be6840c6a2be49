"""Tiles in pieces, so that their holders share in sending them."""

from collections.abc import Callable
from typing import NamedTuple

from .cuts import Cut
from .pallas_peers import maximum


class Pieces(NamedTuple):
    """Into how many pieces tiles are cut, along which dimension, at multiples of `unit`; `range_of`
    gives that of a piece within the width of a tile."""

    pieces: int
    dim: int
    unit: int
    range_of: Callable

    @property
    def cut(self):
        """The same in plain integers, by which the proof of an exchange cuts boxes."""
        return Cut(self.pieces, self.dim, self.unit)

    def part(self, box, piece):
        """Return the box of a piece of a tile."""
        dim, (low, high) = self.dim, box[2 * self.dim : 2 * self.dim + 2]
        start, end = self.range_of(maximum(high - low, 0), piece)
        return (*box[: 2 * dim], low + start, low + end, *box[2 * dim + 2 :])
