"""The slots form, and the common part of forms with slots: XLA packs each tile into a slot and
assembles target shards from slots."""

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
    """How a slot holds a box. `shape`: its own; `held`: the extents of the box; `dense`: whether
    rows are contiguous in granules of 512 bytes; `order`: the dimension order in the slot, None for
    the tensor's."""

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
    """The common part of forms with slots. `slot`: how a slot holds a tile; `window`: the shape
    that fits every tile; `source_reach`, `target_reach`: the extents that windows need of the
    source and the target shard, if beyond their ends."""

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
        """Return the window at a tensor box, in a shard that covers `within`."""
        return lax.dynamic_slice(x, starts(box, within), self.window)

    def filled(self, slots, count, tile, dtype):
        """Return `slots` slots, the first `count` packed; tile(number) returns a slot and a
        window."""

        def one(number, slots):
            place, window = tile(number)
            return lax.dynamic_update_index_in_dim(
                slots, self.slot.packed(window), jnp.int32(place), 0
            )

        slots = jnp.zeros((slots, *self.slot.shape), dtype)
        return lax.fori_loop(np.int32(0), jnp.int32(count), one, slots)

    def put_together(self, me, receiver, window, dtype):
        """Assemble the target shard at a position from the windows window(number, piece).

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
    """Return the start of a tensor box in the shard that covers `within`."""
    pairs = zip(box[::2], within[::2], strict=True)
    return [jnp.int32(low - start) for low, start in pairs]


def slot_number(shard, counted, piece, pieces):
    """Return the slot of a piece of a tile: the row-major number of its shard among (first, count)
    per dimension, and of the piece among `pieces`."""
    number = 0
    for index, (first, count) in zip(shard, ranges(counted), strict=True):
        number = number * count + index - first
    return number * pieces + piece


class Slots(Packed):
    """`outgoing`, `incoming`: slots of a device, one for each piece that it may send or receive, by
    `slot_number`. `kernel`: takes a table of ranks, if any, both sets of slots, and DMA
    semaphores."""

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
