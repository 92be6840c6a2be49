"""Tiles cut into pieces, so that several holders of a tile share the work of sending it."""

from typing import NamedTuple

from .exchanges import Exchange
from .gaps import volume


class Cut(NamedTuple):
    """The division of a tile along dimension `dim` into `pieces` pieces. Pieces start at multiples
    of `unit` elements from the start of the tile; their sizes differ by at most one unit."""

    pieces: int
    dim: int
    unit: int

    def piece(self, box, number):
        """Return the box of piece `number` of a tile."""
        low, high = box[2 * self.dim : 2 * self.dim + 2]
        step, more = divmod((high - low) // self.unit, self.pieces)
        start = low + (number * step + min(number, more)) * self.unit
        end = start + (step + (number < more)) * self.unit
        return (*box[: 2 * self.dim], start, end, *box[2 * self.dim + 2 :])


class CutExchange(Exchange):
    """Transfers of pieces of tiles: `senders` and `receivers` yield pairs of a position and a piece
    number, which is None for a whole tile."""

    def __init__(self, source, target, senders, receivers, cut, **more):
        super().__init__(source, target, senders, receivers, **more)
        self.cut = cut

    def incoming(self, receiver):
        """Return the pieces that make up the target shard at a position."""
        return self._pieces((s, receiver, number) for s, number in self._senders(receiver))

    def outgoing(self, sender):
        """Return the pieces of the source shard at a position, including the pieces that the device
        keeps."""
        return self._pieces((sender, r, number) for r, number in self._receivers(sender))

    def _pieces(self, moves):
        found = []
        for sender, receiver, number in moves:
            for tile in self.full([(sender, receiver)]):
                box = tile.box if number is None else self.cut.piece(tile.box, number)
                if volume(box):
                    found.append(tile._replace(box=box, number=number))
        return found
