"""Programs whose tiles have one shape, narrower than memory tiles: XLA packs each tile densely into
a slot, one kernel pushes slots, and XLA unpacks them."""

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.pallas import tpu as pltpu

from .pallas_program import PallasProgram


class Thin(PallasProgram):
    """A reshard among `Permuted` peers. `kernel`: a function of outgoing and incoming slots, in
    HBM, and DMA semaphores for both; `in_source(receiver)`: the start in the source shard of the
    tile for a receiver; `in_target(sender)`: the start in the target shard of the tile from a
    sender."""

    form = "slots"

    def __init__(self, kernel, peers, slot, in_source, in_target, **settings):
        super().__init__(peers, tuple(range(len(slot.held))), **settings)
        self.kernel, self.slot = kernel, slot
        self.in_source, self.in_target = in_source, in_target
        self.outgoing = self.incoming = peers.count

    def moved(self, x, call):
        """Return the target shard."""
        me, peers = lax.axis_index(self.peers.axes), self.peers

        def pack(number):
            start = map(jnp.int32, self.in_source(peers.receiver(me, number)))
            return self.slot.packed(lax.dynamic_slice(x, [*start], self.slot.held))

        def unpack(number, y):
            start = map(jnp.int32, self.in_target(peers.sender(me, number)))
            slot = lax.dynamic_index_in_dim(slots, number, 0, keepdims=False)
            return lax.dynamic_update_slice(y, self.slot.unpacked(slot), [*start])

        slots = lax.map(pack, jnp.arange(peers.count, dtype=jnp.int32))
        slots = call.pushed(self.kernel, slots, slots.shape, [pltpu.SemaphoreType.DMA] * 2)
        y = jnp.zeros(self.target_shape, x.dtype)
        return lax.fori_loop(np.int32(0), np.int32(peers.count), unpack, y)
