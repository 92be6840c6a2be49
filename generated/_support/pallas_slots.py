"""The slots form: one kernel copies packed tiles from device to device."""

from jax import lax
from jax.experimental.pallas import tpu as pltpu

from .boxes import ranges
from .pallas_packed import Packed
from .pallas_peers import div


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
