"""The spread form: several devices forward whole source shards."""

import jax.numpy as jnp
import numpy as np
from jax import lax

from .pallas_routed import Routed


class Spread(Routed):
    """A forwarding form whose slots hold whole source shards, forwarded unchanged. Slot arrives[n]
    ends with the shard of the device offsets[n] behind."""

    form = "spread"
    spreads = True

    def _start(self, x, *_):
        """Return the initial slots: the first has the source shard."""
        slots = jnp.zeros((self.schedule.slots, *self.slot.shape), x.dtype)
        return lax.dynamic_update_index_in_dim(slots, self.slot.packed(x), np.int32(0), 0)

    def _tile(self, slot, piece):
        """Return the tile in the source shard in a slot, with the rest of its window."""
        return self._cut(self.slot.unpacked(slot), piece.box, self.host.source.box(piece.peer))
