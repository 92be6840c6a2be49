"""The slots form: tiles are thin, so they travel in slots. XLA packs each, row after row, into a
slot of granules of 512 bytes, slots are pushed, and XLA unpacks them.
"""

import math

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from .boxes import ranges
from .pallas_index import LOGICAL, each, is_full, operand
from .pallas_peers import count_of
from .pallas_program import PallasProgram


class Slots(PallasProgram):
    """`window`: what a tile fits; `slot`: the shape of a slot, (granules, packed, 128); `outgoing`,
    `incoming`: slots of a device; `padding`: what windows that start at the last tile need beyond
    the source shard; `reach`: what they reach of the target shard."""

    form = "slots"
    packed = True

    def __init__(
        self,
        peers,
        window,
        slot,
        outgoing,
        incoming,
        padding=None,
        reached=None,
        collective_id=None,
        reach=False,
    ):
        super().__init__(peers, tuple(range(len(window))), collective_id, reach)
        self.window, self.slot, self.outgoing, self.incoming = window, slot, outgoing, incoming
        self._padding, self._reached = padding, reached

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

    def _slot_of(self, number, counted):
        """Return the shard and piece of a slot: the inverse of `_number`."""
        count, shard = self.peers.count, []
        piece, number = number % count, number // count
        for first, extent in reversed([*ranges(counted)]):
            shard.append(first + number % extent)
            number = number // extent
        return tuple(reversed(shard)), piece

    def _filled(self, ref, number, box):
        """Return the granules of a slot that a tile takes."""
        size, granule = (box[1] - box[0]) * math.prod(self.window[1:]), math.prod(self.slot[1:])
        return ref.at[operand(number), pl.ds(0, (size + granule - 1) // granule), :, :]

    def _pack(self, x, me):
        """Return each tile of the source shard, as row after row of a window, in a slot."""
        forms, within = self.peers.forms, self.host.source.box(me)
        own, counted = forms.source_shard(me), forms.receivers(me)
        if self._padding:
            x = jnp.pad(x, self._padding)

        def one(number, slots):
            shard, piece = self._slot_of(number, counted)
            box = self.peers.tile(own, shard, piece)
            window = lax.dynamic_slice(x, starts(box, within), self.window).reshape(-1)
            more = math.prod(self.slot) - window.size
            slot = jnp.pad(window, (0, more)).reshape(self.slot)
            return lax.dynamic_update_index_in_dim(slots, slot, number, 0)

        slots = jnp.zeros((self.outgoing, *self.slot), x.dtype)
        count = jnp.int32(count_of(counted) * self.peers.count)
        return lax.fori_loop(np.int32(0), count, one, slots)

    def _unpack(self, slots, receiver):
        """Return the target shard from the slots of its tiles.

        Tiles come in row-major order and a window reaches beyond its tile only to higher indices,
        so that what a window writes too much is written over by the tiles that follow.
        """
        forms, within = self.peers.forms, self.host.target.box(receiver)
        own, counted = forms.target_shard(receiver), forms.senders(receiver)

        def one(number, y):
            shard, piece = self._slot_of(number, counted)
            box = self.peers.tile(shard, own, piece)
            slot = lax.dynamic_index_in_dim(slots, number, 0, keepdims=False)
            window = slot.reshape(-1)[: math.prod(self.window)].reshape(self.window)
            return lax.dynamic_update_slice(y, window, starts(box, within))

        y = jnp.zeros(self._reached or self.target_shape, slots.dtype)
        count = jnp.int32(count_of(counted) * self.peers.count)
        return trimmed(lax.fori_loop(np.int32(0), count, one, y), self.target_shape)

    def buffers(self):
        """Return the shapes of the slots that leave, and of those that come."""
        return (self.outgoing, *self.slot), (self.incoming, *self.slot)

    def moved(self, x, order, interpret, collective_id):
        """Return the target shard, its padding left as it comes."""
        me, receiver = self.peers.clipped(order)
        scratch = [pltpu.SemaphoreType.DMA] * 3
        kernel, (_, shape) = self.seen(self.kernel), self.buffers()
        x = self._pack(x, me)
        y = self.pushed(kernel, x, shape, scratch, order, interpret, collective_id)
        return self._unpack(y, receiver)


def starts(box, within):
    """Return where a tensor box starts in the shard that covers the range `within`."""
    pairs = zip(box[::2], within[::2], strict=True)
    return [jnp.int32(low - start) for low, start in pairs]


def trimmed(y, shape):
    """Return the start of an array."""
    return y if y.shape == tuple(shape) else lax.slice(y, (0,) * y.ndim, shape)
