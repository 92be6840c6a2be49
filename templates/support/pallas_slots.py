"""The slots form: XLA packs each tile into a slot, one kernel copies slots from device to device,
and XLA assembles target shards from slots."""

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.pallas import tpu as pltpu

from .boxes import ranges
from .pallas_integers import starts
from .pallas_peers import div
from .pallas_program import PallasProgram


def slot_number(shard, counted, piece, pieces):
    """Return the slot number of a piece: the row-major number of its shard among the shards
    `counted`, (first, count) per dimension, times `pieces`, plus the piece number."""
    number = 0
    for index, (first, count) in zip(shard, ranges(counted), strict=True):
        number = number * count + index - first
    return number * pieces + piece


class Slots(PallasProgram):
    """A form that copies slots from device to device. `kernel`: a function of a table of ranks or
    None, both arrays of slots, and DMA semaphores; `slot`: the slot of a tile, which holds a box
    into which every tile fits; `counts`: the number of slots of a device, one for each piece that
    it may send and one for each that it may receive (`slot_number`); `source_reach`,
    `target_reach`: the extents to which such boxes reach in the source and the target shard, if
    beyond its end."""

    form = "slots"

    def __init__(self, kernel, peers, slot, counts, source_reach=None, target_reach=None, **more):
        super().__init__(peers, tuple(range(len(slot.held))), **more)
        self.kernel, self.slot, (self.outgoing, self.incoming) = kernel, slot, counts
        self._source_reach, self._target_reach = source_reach, target_reach or self.target_shape
        self.slot_shape = slot.shape

    def moved(self, x, call):
        """Return the target shard with arbitrary padding."""
        peers, (me, receiver) = self.peers, self.peers.here(call.order)
        within, whole = self.host.source.box(me), self.host.target.box(receiver)
        pairs = zip(x.shape, self._source_reach or x.shape, strict=True)
        x = jnp.pad(x, [(0, reach - size) for size, reach in pairs])

        def pack(number, slots):
            _, _, shard, piece, box = peers.outgoing(me, number * peers.replicas, call.order)
            place = jnp.int32(slot_number(shard, peers.forms.receivers(me), piece, peers.count))
            slot = self.slot.packed(lax.dynamic_slice(x, starts(box, within), self.slot.held))
            return lax.dynamic_update_index_in_dim(slots, slot, place, 0)

        def unpack(number, y):
            # Tiles come in row-major order and the box of a slot exceeds its tile only towards
            # higher indices, so later tiles overwrite the excess.
            start = starts(peers.incoming(receiver, me, number).box, whole)
            slot = lax.dynamic_index_in_dim(slots, number, 0, keepdims=False)
            return lax.dynamic_update_slice(y, self.slot.unpacked(slot), start)

        count = jnp.int32(div(peers.outgoing_count(me), peers.replicas))
        slots = jnp.zeros((self.outgoing, *self.slot.shape), x.dtype)
        slots = lax.fori_loop(np.int32(0), count, pack, slots)
        shape, scratch = (self.incoming, *self.slot.shape), [pltpu.SemaphoreType.DMA] * 3
        slots = call.pushed(call.seen(self.kernel), slots, shape, scratch)
        count = jnp.int32(peers.incoming_count(receiver))
        y = lax.fori_loop(np.int32(0), count, unpack, jnp.zeros(self._target_reach, x.dtype))
        return lax.slice(y, (0,) * y.ndim, self.target_shape)
