"""The slots form, and the common part of forms with slots: XLA packs each tile into a slot, kernels
move slots, and XLA assembles target shards from slots."""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.pallas import tpu as pltpu

from .boxes import ranges
from .pallas_peers import div
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
            return lax.dynamic_update_index_in_dim(
                slots, self.slot.packed(window), jnp.int32(place), 0
            )

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


def slot_number(shard, counted, piece, pieces):
    """Return the slot number of a piece: the row-major number of its shard among the shards
    `counted`, (first, count) per dimension, times `pieces`, plus the piece number."""
    number = 0
    for index, (first, count) in zip(shard, ranges(counted), strict=True):
        number = number * count + index - first
    return number * pieces + piece


class Slots(Packed):
    """A form that copies slots from device to device. `outgoing`, `incoming`: the number of
    slots of a device, one for each piece that it may send or receive (`slot_number`). `kernel`:
    a function of a table of ranks or None, both arrays of slots, and DMA semaphores."""

    form = "slots"

    def __init__(self, kernel, *given, outgoing, incoming, **settings):
        super().__init__(*given, **settings)
        self.kernel, self.outgoing, self.incoming = kernel, outgoing, incoming

    def moved(self, x, call):
        """Return the target shard with arbitrary padding."""
        peers, (me, receiver) = self.peers, self.peers.here(call.order)
        x, within = self.padded(x), self.host.source.box(me)

        def tile(number):
            _, _, shard, piece, box = peers.outgoing(me, number * peers.replicas, call.order)
            place = slot_number(shard, peers.forms.receivers(me), piece, peers.count)
            return place, self.window_at(x, box, within)

        def window(number, _):
            return self.slot.unpacked(lax.dynamic_index_in_dim(y, number, 0, keepdims=False))

        count = div(peers.outgoing_count(me), peers.replicas)
        slots = self.filled(self.outgoing, count, tile, x.dtype)
        shape, scratch = (self.incoming, *self.slot.shape), [pltpu.SemaphoreType.DMA] * 3
        y = call.pushed(call.seen(self.kernel), slots, shape, scratch)
        return self.put_together(me, receiver, window, x.dtype)
