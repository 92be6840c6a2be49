"""The slots form, and what all forms with slots have in common: XLA packs each tile into a slot
and puts target shards together from them.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from .boxes import ranges
from .pallas_peers import (
    LOGICAL,
    div,
    is_full,
    maximum,
    multiple,
    operand,
    total_far_apart,
)
from .pallas_program import PallasProgram, wait_for_units


class Slot(NamedTuple):
    """How a slot holds a box. `shape`: its own; `held`: the extents of the box; `dense`: whether
    rows lie one after another in granules of 512 bytes; `order`: that of the dimensions in the
    slot, None for the tensor's; `sized`: (dimension, what divides sizes) of which moves say how
    much is sent; `halves`: whether they say where, along the first, that begins; `chunks`: into how
    many, along the first, moves are cut."""

    shape: tuple[int, ...]
    held: tuple[int, ...]
    dense: bool = False
    order: tuple[int, ...] | None = None
    sized: tuple[tuple[int, int], ...] = ()
    halves: bool = False
    chunks: int = 1

    def part(self, moves, first, chunk=0):
        """Return the part of a slot that a chunk of a move takes; its numbers begin at `first`."""
        part: list[object] = [slice(None)] * len(self.shape)
        for number, (axis, unit) in enumerate(self.sized):
            begin = moves[first + 2] if self.halves and axis == 0 else 0
            low, high = 0, moves[first + 2 + self.halves + number]
            if axis == 0:
                low, high = self._chunk(high, unit, chunk)
            span = begin + low, high - low
            part[axis] = pl.ds(*(each if unit == 1 else multiple(each, unit) for each in span))
        return tuple(part)

    def span(self, move, chunk=0):
        """Return from where to where along the first dimension a chunk of a move goes."""
        begin, columns = move[2] if self.halves else 0, dict(self.sized)
        if 0 not in columns:
            return 0, self.shape[0]
        low, high = self._chunk(move[2 + self.halves], columns[0], chunk)
        return begin + low, begin + high

    def _chunk(self, extent, unit, chunk):
        """Return where a chunk of an extent begins and ends, in whole units."""
        if self.chunks == 1:
            return 0, extent
        units = div(extent, unit)
        return tuple(div(units * number, self.chunks) * unit for number in (chunk, chunk + 1))

    def columns(self, halves=(0, 1), sizes=()):
        """Return what a move says of the halves that it sends: where they begin, if that may be
        elsewhere than at the start, and their extents along the dimensions of `sized`; `sizes`:
        those of both halves, if that is not the whole slot."""
        sizes, begin = list(sizes or (self.shape[axis] for axis, _ in self.sized)), 0
        if len(halves) == 1:
            unit = self.sized[0][1]
            cut = -(-sizes[0] // (2 * unit)) * unit
            begin, sizes[0] = ((0, cut), (cut, sizes[0] - cut))[halves[0]]
        return *[begin] * self.halves, *sizes

    def packed(self, values):
        """Return a slot that holds values."""
        if self.dense:
            values = values.reshape(-1)
            return jnp.pad(values, (0, math.prod(self.shape) - values.size)).reshape(self.shape)
        return values if self.order is None else lax.transpose(values, self.order)

    def unpacked(self, slot):
        """Return what a slot holds."""
        if self.dense:
            return slot.reshape(-1)[: math.prod(self.held)].reshape(self.held)
        return slot if self.order is None else lax.transpose(slot, np.argsort(self.order))


class Packed(PallasProgram):
    """What forms with slots have in common. `slot`: how one holds what travels; `window`: what a
    tile fits; `source_reach`, `target_reach`: how far windows reach into the source shard, and into
    the target shard, where that is beyond their ends."""

    packed = True

    def __init__(
        self, peers, slot, window, source_reach=None, target_reach=None, view=None, **settings
    ):
        super().__init__(peers, view or tuple(range(len(window))), **settings)
        self.slot, self.window = slot, window
        self._source_reach, self._target_reach = source_reach, target_reach

    def padded(self, x):
        """Return a source shard as far as windows reach."""
        pairs = zip(x.shape, self._source_reach or x.shape, strict=True)
        return jnp.pad(x, [(0, reach - size) for size, reach in pairs])

    def window_at(self, x, box, within):
        """Return the window that begins at a tensor box, of a shard that covers another."""
        return lax.dynamic_slice(x, starts(box, within), self.window)

    def filled(self, slots, count, tile, dtype):
        """Return so many slots, `count` of them packed: tile(number) gives a slot and a window."""

        def one(number, slots):
            place, window = tile(number)
            return lax.dynamic_update_index_in_dim(
                slots, self.slot.packed(window), jnp.int32(place), 0
            )

        slots = jnp.zeros((slots, *self.slot.shape), dtype)
        return lax.fori_loop(np.int32(0), jnp.int32(count), one, slots)

    def put_together(self, me, receiver, window, dtype):
        """Return the target shard at a position, of the windows window(number, piece).

        Tiles come in row-major order and a window reaches beyond its tile only to higher indices,
        so that what a window writes too much is written over by the tiles that follow.
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
    """Return where a tensor box starts in the shard that covers the range `within`."""
    pairs = zip(box[::2], within[::2], strict=True)
    return [jnp.int32(low - start) for low, start in pairs]


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
            copy = pltpu.make_async_remote_copy(
                read, write, sent, received, device_id=device, device_id_type=LOGICAL
            )
            pl.when(sends)(copy.start)
            return jnp.where(sends, jnp.int32(self._granules(box)), 0)

        if peers.sends:
            come = peers.meet(me, receiver, order, lambda piece: self._granules(piece.box))
            left = total_far_apart(peers.outgoing_count(me), push)
        if peers.kept:
            self._keep(me, receiver, x, y, copied)
        if peers.sends:
            granule = 1, 1, *self.slot.shape[1:]
            wait_for_units(x, granule, left, sent)
            wait_for_units(y, granule, come, received)

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
        return ref.at[operand(number), pl.ds(0, self._granules(box)), :, :]

    def _granules(self, box):
        """Return how many granules a tile takes of a slot."""
        size = maximum(box[1] - box[0], 0) * math.prod(self.window[1:])
        granule = math.prod(self.slot.shape[1:])
        return div(size + granule - 1, granule)

    def moved(self, x, call):
        """Return the target shard, its padding left as it comes."""
        peers, (me, receiver) = self.peers, self.peers.here(call.order)
        x, within = self.padded(x), self.host.source.box(me)

        def tile(number):
            _, _, shard, piece, box = peers.outgoing(me, number * peers.replicas, call.order)
            place = self._number(shard, peers.forms.receivers(me), piece)
            return place, self.window_at(x, box, within)

        def window(number, _):
            return self.slot.unpacked(lax.dynamic_index_in_dim(y, number, 0, keepdims=False))

        count = div(peers.outgoing_count(me), peers.replicas)
        slots = self.filled(self.outgoing, count, tile, x.dtype)
        shape, scratch = (self.incoming, *self.slot.shape), [pltpu.SemaphoreType.DMA] * 3
        y = call.pushed(call.seen(self.kernel), slots, shape, scratch)
        return self.put_together(me, receiver, window, x.dtype)
