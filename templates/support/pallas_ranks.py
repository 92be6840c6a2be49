"""Transfers between meshes of different devices or device orders.

A rank is a device's index among the sorted ids of both meshes. Functions that take `order` look up
ranks in that table if ids have no closed form.
"""

import jax.numpy as jnp
from jax import lax

from .pallas_integers import maximum
from .pallas_peers import is_traced
from .pallas_pieces import Peers
from .ranks import end_ranks


class RankedPeers(Peers):
    """`Peers` for meshes of different devices or device orders. A device may be in only one mesh,
    and its rank need not equal its positions."""

    one_order = False

    def __init__(self, *given, **settings):
        super().__init__(*given, **settings)
        self.axes, self.ranks = "device", sorted({*self.source.ids, *self.target.ids})
        self._offsets, self.order = self._ranks()

    def _ranks(self):
        """Return offsets and a table, one of which is None. The table has the ranks by source
        position and by target position, then the positions in the source mesh and in the target
        mesh by rank, -1 for none. If ids are consecutive, four offsets replace its parts."""
        ends = end_ranks(self)
        if all(isinstance(ids, range) for ids in (self.source.ids, self.target.ids)):
            source, target = (ranks[0] for ranks in ends)
            return (source, target, -source, -target), None
        places = [{rank: position for position, rank in enumerate(ranks)} for ranks in ends]
        ranks = range(len(self.ranks))
        return None, (*ends[0], *ends[1], *(place.get(k, -1) for place in places for k in ranks))

    def _looked_up(self, table, number, order):
        if order is None:
            return number + self._offsets[table]
        sizes = len(self.source.ids), len(self.target.ids), len(self.ranks)
        return order[sum(sizes[:table]) + number]

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
