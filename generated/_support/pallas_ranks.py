"""Transfers between meshes of different devices or device orders.

A rank is a device's index among the sorted ids of both meshes. Functions that take `order` look up
ranks in that table if ids have no closed form.
"""

import itertools

import jax.numpy as jnp
from jax import lax

from .pallas_integers import maximum
from .pallas_peers import is_traced
from .pallas_pieces import Peers


class RankedPeers(Peers):
    """`Peers` for meshes of different devices or device orders. A device may be in only one mesh,
    and its rank need not equal its positions."""

    one_order = False

    def __init__(self, *given, **settings):
        super().__init__(*given, **settings)
        self.axes, sides = "device", (self.source.ids, self.target.ids)
        rank = {device_id: n for n, device_id in enumerate(sorted({*sides[0], *sides[1]}))}
        ranks = [[rank[device_id] for device_id in side] for side in sides]
        if all(isinstance(side, range) for side in sides):  # consecutive: no table is needed
            source, target = (side[0] for side in ranks)
            self._offsets: tuple[int, ...] = source, target, -source, -target
            return
        # Ranks by source position and by target position, then positions in the source mesh and in
        # the target mesh by rank, -1 for none.
        places = [{number: place for place, number in enumerate(side)} for side in ranks]
        found = [place.get(number, -1) for place in places for number in range(len(rank))]
        self.order = (*ranks[0], *ranks[1], *found)
        self._offsets = (*itertools.accumulate([0, *map(len, sides), len(rank)]),)

    def _looked_up(self, table, number, order):
        number = number + self._offsets[table]
        return number if order is None else order[number]

    def source_rank(self, position, order=None):
        """Return the rank of the device at a source position."""
        return self._looked_up(0, position, order)

    def target_rank(self, position, order=None):
        """Return the rank of the device at a target position."""
        return self._looked_up(1, position, order)

    def here(self, order=None, rank=None):
        """Return the positions of a rank, by default this device's, in the source mesh and in the
        target mesh; an invalid position for a mesh without the device."""
        rank = lax.axis_index(self.axes) if rank is None else rank
        return self._looked_up(2, rank, order), self._looked_up(3, rank, order)

    def within(self, position, side):
        """Return whether a position is valid in the mesh of a side."""
        return (position >= 0) & (position < len(side.ids))

    def holds(self, position, shard):
        """Return whether a source position, possibly invalid, holds a source shard."""
        held = super().holds(maximum(position, 0), shard)
        return held & self.within(position, self.source)

    def counted(self, position, side, count):
        """Return a count, or 0 for a position outside the mesh."""
        inside = self.within(position, side)
        return count * (jnp.int32(inside) if is_traced(inside) else inside)

    def incoming_count(self, receiver):
        """Return the number of pieces in a target shard, empty ones included."""
        return self.counted(receiver, self.target, super().incoming_count(receiver))

    def outgoing_count(self, me):
        """Return the number of pieces that a source position may send."""
        return self.counted(me, self.source, super().outgoing_count(me))
