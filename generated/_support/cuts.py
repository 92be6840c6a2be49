"""Pieces of tiles."""

from typing import NamedTuple


class Cut(NamedTuple):
    """How tiles are cut so that their holders share the sending: into pieces along one dimension,
    at multiples of `unit` from the start of the tile; sizes differ by at most one unit."""

    pieces: int
    dim: int
    unit: int

    def piece(self, box, number):
        """Return a piece of a tile."""
        low, high = box[2 * self.dim : 2 * self.dim + 2]
        step, more = divmod((high - low) // self.unit, self.pieces)
        start = low + (number * step + min(number, more)) * self.unit
        end = start + (step + (number < more)) * self.unit
        return (*box[: 2 * self.dim], start, end, *box[2 * self.dim + 2 :])
