"""The slots form: tiles are thin, so they travel in slots. XLA packs each, row after row, into a
slot of granules of 512 bytes, slots are pushed, and XLA unpacks them.
"""

import math

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from .boxes import ranges
from .pallas_index import LOGICAL, div, each, is_full, operand
from .pallas_packed import Packed


class Slots(Packed):
    """`outgoing`, `incoming`: slots of a device, each for the piece whose row-major number among
    those that the device may send, or get, it has."""

    form = "slots"

    def __init__(self, *given, outgoing, incoming, **settings):
        super().__init__(*given, **settings)
        self.outgoing, self.incoming = outgoing, incoming

    def kernel(self, order, x, y, copied, sent, received):
        """Push this device's tiles into slots of their receivers.

        x, y: the slots of its outgoing and incoming tiles; copied, sent, received: DMA semaphores.
        """
        peers = self.peers
        me, receiver = peers.here(order)

        def push(number):
            sends, receiver, shard, piece, box = peers.outgoing(me, number, order)
            own, forms = peers.forms.source_shard(me), peers.forms
            read = self._filled(x, self._number(shard, forms.receivers(me), piece), box)
            write = self._filled(y, self._number(own, forms.senders(receiver), piece), box)
            device = jnp.int32(peers.target_rank(receiver, order))
            return sends, pltpu.make_async_remote_copy(
                read, write, sent, received, device_id=device, device_id_type=LOGICAL
            )

        def start(number):
            sends, copy = push(number)
            pl.when(sends)(copy.start)

        def leave(number):
            sends, copy = push(number)
            pl.when(sends)(copy.wait_send)

        def arrive(number):
            comes, _, shard, piece, box = peers.incoming(receiver, me, number)
            number = self._number(shard, peers.forms.senders(receiver), piece)
            place = self._filled(y, number, box)
            pl.when(comes)(pltpu.make_async_copy(place, place, received).wait)

        if peers.sends:
            peers.meet(me, receiver, order)
            each(peers.outgoing_count(me), start)
        if peers.kept:
            self._keep(me, receiver, x, y, copied)
        if peers.sends:
            each(peers.outgoing_count(me), leave)
            each(peers.incoming_count(receiver), arrive)

    def _keep(self, me, receiver, x, y, copied):
        """Copy what this device holds of its own target shard."""
        peers, forms = self.peers, self.peers.forms
        own, wanted = forms.source_shard(me), forms.target_shard(receiver)
        some = is_full(ranges(forms.tile(*own, *wanted)))
        if not peers.one_order:
            some = some & peers.holds(me, own) & peers.within(receiver, self.host.target)
        kept = []
        for piece in range(peers.count):
            box = peers.tile(own, wanted, piece)
            read = self._filled(x, self._number(wanted, forms.receivers(me), piece), box)
            write = self._filled(y, self._number(own, forms.senders(receiver), piece), box)
            kept.append(pltpu.make_async_copy(read, write, copied))
        for copy in kept:
            pl.when(some)(copy.start)
        for copy in kept:
            pl.when(some)(copy.wait)

    def _number(self, shard, counted, piece):
        """Return the slot of a piece: the row-major number of its shard among (first, count) per
        dimension."""
        number = 0
        for index, (first, count) in zip(shard, ranges(counted), strict=True):
            number = number * count + index - first
        return number * self.peers.count + piece

    def _filled(self, ref, number, box):
        """Return the granules of a slot that a tile takes."""
        size, granule = (
            (box[1] - box[0]) * math.prod(self.window[1:]),
            math.prod(self.slot.shape[1:]),
        )
        return ref.at[operand(number), pl.ds(0, (size + granule - 1) // granule), :, :]

    def buffers(self):
        """Return the shapes of the slots that leave, and of those that come."""
        return (self.outgoing, *self.slot.shape), (self.incoming, *self.slot.shape)

    def moved(self, x, order, interpret, collective_id):
        """Return the target shard, its padding left as it comes."""
        peers, (me, receiver) = self.peers, self.peers.here(order)
        x, within = self.padded(x), self.host.source.box(me)

        def tile(number):
            _, _, shard, piece, box = peers.outgoing(me, number * peers.replicas, order)
            place = self._number(shard, peers.forms.receivers(me), piece)
            return place, self.window_at(x, box, within)

        def window(number, piece):
            del piece
            return self.slot.unpacked(lax.dynamic_index_in_dim(y, number, 0, keepdims=False))

        count = div(peers.outgoing_count(me), peers.replicas)
        slots = self.filled(self.outgoing, count, tile, x.dtype)
        kernel, (_, shape) = self.seen(self.kernel), self.buffers()
        scratch = [pltpu.SemaphoreType.DMA] * 3
        y = self.pushed(kernel, slots, shape, scratch, order, interpret, collective_id)
        return self.put_together(me, receiver, window, x.dtype)
