"""The common part of forms with slots: XLA packs each tile into a slot, kernels move slots, and XLA
assembles target shards from slots."""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from .pallas_program import PallasProgram


class Slot(NamedTuple):
    """The storage of a box in a slot. `shape`: the shape of the slot; `held`: the extents of the
    box; `dense`: whether its elements are contiguous, without row padding; `order`: the order of
    dimensions in the slot, None for the tensor's order."""

    shape: tuple[int, ...]
    held: tuple[int, ...]
    dense: bool = False
    order: tuple[int, ...] | None = None

    def packed(self, values):
        if self.dense:
            values = values.reshape(-1)
            return jnp.pad(values, (0, math.prod(self.shape) - values.size)).reshape(self.shape)
        return values if self.order is None else lax.transpose(values, self.order)

    def unpacked(self, slot):
        """Invert `packed`."""
        if self.dense:
            return slot.reshape(-1)[: math.prod(self.held)].reshape(self.held)
        return slot if self.order is None else lax.transpose(slot, np.argsort(self.order))


class Packed(PallasProgram):
    """The common part of forms with slots. `slot`: the `Slot` of a tile; `window`: a shape into
    which every tile fits; `source_reach`, `target_reach`: the extents to which windows reach in
    the source and the target shard, if they reach beyond its end."""

    def __init__(
        self, peers, slot, window, source_reach=None, target_reach=None, view=None, **settings
    ):
        super().__init__(peers, view or tuple(range(len(window))), **settings)
        self.slot, self.window = slot, window
        self._source_reach, self._target_reach = source_reach, target_reach

    def padded(self, x):
        """Return a source shard padded to the reach of windows."""
        pairs = zip(x.shape, self._source_reach or x.shape, strict=True)
        return jnp.pad(x, [(0, reach - size) for size, reach in pairs])

    def window_at(self, x, box, within):
        """Return the window that starts at a box, read from the shard that covers box `within`."""
        return lax.dynamic_slice(x, starts(box, within), self.window)

    def filled(self, slots, count, tile, dtype):
        """Return `slots` slots after packing `count` windows into them. `tile(number)` returns
        the slot number and the window."""

        def one(number, slots):
            place, window = tile(number)
            packed = self.slot.packed(window)
            return lax.dynamic_update_index_in_dim(slots, packed, jnp.int32(place), 0)

        slots = jnp.zeros((slots, *self.slot.shape), dtype)
        return lax.fori_loop(np.int32(0), jnp.int32(count), one, slots)

    def put_together(self, me, receiver, window, dtype):
        """Return the target shard at position `receiver`, assembled from the windows that
        window(number, piece) returns.

        Tiles come in row-major order and a window exceeds its tile only towards higher indices, so
        later tiles overwrite the excess.
        """
        within = self.host.target.box(receiver)

        def one(number, y):
            piece = self.peers.incoming(receiver, me, number)
            return lax.dynamic_update_slice(y, window(number, piece), starts(piece.box, within))

        y = jnp.zeros(self._target_reach or self.target_shape, dtype)
        count = jnp.int32(self.peers.incoming_count(receiver))
        y = lax.fori_loop(np.int32(0), count, one, y)
        return lax.slice(y, (0,) * y.ndim, self.target_shape)


def starts(box, within):
    """Return the start of a box, relative to the shard that covers box `within`."""
    pairs = zip(box[::2], within[::2], strict=True)
    return [jnp.int32(low - start) for low, start in pairs]
