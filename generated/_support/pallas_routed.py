"""The routed and spread forms: tiles, or source shards, go from device to device.

A v5e sends over a power of two of hops along one axis of its torus only, so that what is wanted
farther away goes on. The number of a device is taken as digits (stride, extent), and at a hop one
digit changes: on a torus of power-of-two extents, filled axis by axis, that is such a distance.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from .pallas_index import LOGICAL, div, each, multiple, rem
from .pallas_program import PallasProgram
from .pallas_slots import starts, trimmed


class Way(NamedTuple):
    """A hop: to the device whose digit (stride, extent) is `by` higher, modulo the extent."""

    stride: int
    extent: int
    by: int

    def end(self, device):
        """Return the device at the end of the hop."""
        digit = rem(div(device, self.stride), self.extent)
        return device + (rem(digit + self.by, self.extent) - digit) * self.stride

    def back(self):
        """Return the hop the other way."""
        return self._replace(by=self.extent - self.by)


class Slot(NamedTuple):
    """How a slot holds a box. `shape`: its own; `held`: the extents of the box; `dense`: whether
    rows lie one after another in granules of 512 bytes; `order`: that of the dimensions in the
    slot, None for the tensor's; `sized`: (dimension, what divides sizes) of which moves say how
    much is sent."""

    shape: tuple[int, ...]
    held: tuple[int, ...]
    dense: bool = False
    order: tuple[int, ...] | None = None
    sized: tuple[tuple[int, int], ...] = ()

    def part(self, moves, first):
        """Return the part of a slot that a move takes, whose numbers begin at `first`."""
        sizes = {axis: (2 + k, unit) for k, (axis, unit) in enumerate(self.sized)}
        part: list[object] = [slice(None)] * (1 + max(sizes, default=-1))
        for axis, (column, unit) in sizes.items():
            size = moves[first + column]
            part[axis] = pl.ds(0, size if unit == 1 else multiple(size, unit))
        return tuple(part)

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
        order = self.order or tuple(range(len(self.held)))
        slot = trimmed(slot, tuple(self.held[axis] for axis in order))
        inverse = tuple(order.index(axis) for axis in range(len(order)))
        return slot if self.order is None else lax.transpose(slot, inverse)


class Schedule(NamedTuple):
    """Who sends which slots on to whom, round by round.

    `digits`: those of devices; `rounds`: of each (stride, extent, by, number of moves); `moves`:
    (slot it leaves, slot it comes to, extents of what is sent of it); `offsets`: how much farther
    on, digit by digit, the devices are that slots are for, or have wanted of; `arrives`: the slots
    in which, in the end, what comes from the devices as much farther back is; `partners`: the hops
    to those that a device sends to or gets of; `slots`: how many there are."""

    digits: tuple[tuple[int, int], ...]
    offsets: tuple[int, ...]
    arrives: tuple[int, ...]
    rounds: tuple[tuple[int, int, int, int], ...]
    moves: tuple[tuple[int, ...], ...]
    partners: tuple[tuple[int, int, int], ...]
    slots: int

    def farther(self, device, offset):
        """Return the device that is so much farther on."""
        for stride, extent in self.digits:
            by = rem(div(offset, stride), extent)
            device = Way(stride, extent, by).end(device)
        return device

    def offset(self, device, other):
        """Return how much farther back another device is."""
        found = 0
        for stride, extent in self.digits:
            own, its = (rem(div(each, stride), extent) for each in (device, other))
            found = found + rem(own + extent - its, extent) * stride
        return found

    def by_offset(self):
        """Return where what came over an offset is in the end, 0 for those over which nothing
        comes."""
        found = [0] * math.prod(extent for _, extent in self.digits)
        for offset, slot in zip(self.offsets, self.arrives, strict=True):
            found[offset] = slot
        return found

    def fault(self, spreads):
        """Return what is wrong with where slots come, which is the same for every device."""
        # What is in each slot: how much farther back it comes from, and the slot it left there.
        held = {slot: (0, slot) for slot in range(self.slots)}
        begin = 0
        for stride, extent, by, count in self.rounds:
            before = dict(held)
            for here, there, *_ in self.moves[begin : begin + count]:
                offset, slot = before[here]
                held[there] = Way(stride, extent, by).end(offset), slot
            begin += count
        for number, (offset, slot) in enumerate(zip(self.offsets, self.arrives, strict=True)):
            wanted = offset, 0 if spreads else number
            if held[slot] != wanted:
                return f"slot {slot} holds what left {held[slot]}, expected {wanted}"
        return ""


class Routed(PallasProgram):
    """Slots hold pieces: slot n at first what goes to the device that is offsets[n] farther on, and
    slot arrives[n] in the end what comes from the one as much farther back. `window`: what a tile
    fits; `slot_bytes`: what a slot takes of HBM; `padding`: what windows that start at the last
    tile need beyond the source shard; `reached`: what they reach of the target shard."""

    form = "routed"
    packed = True
    spreads = False

    def __init__(
        self, peers, schedule, slot, window, collective_id, slot_bytes, padding=None, reached=None
    ):
        super().__init__(peers, tuple(range(len(window))), collective_id, reach=True)
        self.schedule, self.slot, self.window = schedule, slot, window
        self._padding, self._reached, self.slot_bytes = padding, reached, slot_bytes

    @property
    def staging_bytes(self):
        """What slots take."""
        return self.schedule.slots * self.slot_bytes

    def fault(self):
        """Return what is wrong with how shards are moved, found without data; "" if nothing is."""
        return self.schedule.fault(self.spreads)

    def pairs(self):
        """Return the ranks of senders and of receivers, of every hop, as arrays."""
        me = np.arange(len(self.peers.devices))
        hops = [Way(*hop).end(me) for *hop, _ in self.schedule.rounds]
        return np.tile(me, len(hops)), np.concatenate(hops)

    def kernel(self, moves, x, slots, ready, sent, received):
        """Make the hops of every round.

        moves: the numbers of the schedule's, in SMEM; slots: in HBM, x what is in them at first;
        ready: a semaphore a round; sent, received: DMA semaphores.
        """
        del x  # the same memory
        me = lax.axis_index(self.peers.axes)
        self._meet(me)
        begin = 0
        for number, (*hop, count) in enumerate(self.schedule.rounds):
            way = Way(*hop)
            receiver = way.end(me)
            # All that this device has sent has left and all that was to come has come: what comes
            # now finds its slots free.
            free = ready.at[np.int32(number)]
            sender = way.back().end(me)
            pl.semaphore_signal(free, 1, device_id=sender, device_id_type=LOGICAL)
            pl.semaphore_wait(free, 1)

            def push(move, receiver=receiver):
                return self._push(moves, slots, sent, received, receiver, move)

            each(begin + count, lambda move, push=push: push(move).start(), begin)
            # All devices make the same moves: what comes is as much as what goes.
            each(begin + count, lambda move, push=push: push(move).wait_send(), begin)
            each(begin + count, lambda move, push=push: push(move).wait_recv(), begin)
            begin += count

    def _meet(self, me):
        """Tell the devices of all rounds that this one has entered the kernel, and hear it of them.

        None of them ends the call before it has heard of this one, and so a device never holds two
        signals of another.
        """
        barrier = pltpu.get_barrier_semaphore()
        for partner in self.schedule.partners:
            device = Way(*partner).end(me)
            pl.semaphore_signal(barrier, 1, device_id=device, device_id_type=LOGICAL)
        pl.semaphore_wait(barrier, len(self.schedule.partners))

    def _push(self, moves, slots, sent, received, receiver, move):
        """Return the copy of a move."""
        first = (2 + len(self.slot.sized)) * move
        part = self.slot.part(moves, first)
        read, write = (
            slots.at[(moves[first + end], *part) if part else moves[first + end]]
            for end in range(2)
        )
        return pltpu.make_async_remote_copy(
            read, write, sent, received, device_id=receiver, device_id_type=LOGICAL
        )

    def _pack(self, x, device, order):
        """Return the slots as they are at first: in each the tile of one receiver."""
        peers, count = self.peers, self.peers.count
        me, _ = peers.clipped(order, device)
        own, within = peers.forms.source_shard(me), self.host.source.box(me)
        offsets = jnp.array(self.schedule.offsets, jnp.int32)

        def one(number, slots):
            _, receiver = peers.clipped(order, self.schedule.farther(device, offsets[number]))
            piece = None
            if peers.pieces:
                # Of a tile that others hold too this device sends one piece.
                sends = [peers.holder(own, receiver, each) == me for each in range(count)]
                piece = sum(each * jnp.int32(yes) for each, yes in enumerate(sends))
            box = peers.tile(own, peers.forms.target_shard(receiver), piece)
            window = lax.dynamic_slice(x, starts(box, within), self.window)
            place = (number, *[0] * len(self.slot.shape))
            return lax.dynamic_update_slice(slots, self.slot.packed(window)[None], place)

        slots = jnp.zeros((self.schedule.slots, *self.slot.shape), x.dtype)
        return lax.fori_loop(np.int32(0), np.int32(len(self.schedule.offsets)), one, slots)

    def _window(self, slot, box, sender):
        """Return the tile that a slot holds, with what is beyond it in its window."""
        del box, sender
        return self.slot.unpacked(slot)

    def _unpack(self, slots, x, device, order):
        """Return the target shard from the slots and from what this device holds of it.

        Tiles come in row-major order and a window reaches beyond its tile only to higher indices,
        so that what a window writes too much is written over by the tiles that follow.
        """
        peers, (me, receiver) = self.peers, self.peers.places(device, order)
        arrives = jnp.array(self.schedule.by_offset(), jnp.int32)

        def one(number, y):
            comes, sender, _, _, box = peers.incoming(receiver, me, number)
            offset = self.schedule.offset(device, peers.source_rank(sender, order))
            slot = lax.dynamic_index_in_dim(slots, arrives[offset], 0, keepdims=False)
            window = self._window(slot, box, sender)
            if peers.kept:
                kept = lax.dynamic_slice(x, starts(box, self.host.source.box(me)), self.window)
                window = jnp.where(comes, window, kept)
            return lax.dynamic_update_slice(y, window, starts(box, self.host.target.box(receiver)))

        y = jnp.zeros(self._reached or self.target_shape, slots.dtype)
        count = jnp.int32(peers.incoming_count(receiver))
        return trimmed(lax.fori_loop(np.int32(0), count, one, y), self.target_shape)

    def moved(self, x, order, interpret, collective_id):
        """Return the target shard, its padding left as it comes."""
        device = lax.axis_index(self.peers.axes)
        if self._padding:
            x = jnp.pad(x, self._padding)
        slots = self._pack(x, device, order)
        scratch = [
            pltpu.SemaphoreType.REGULAR((len(self.schedule.rounds),)),
            pltpu.SemaphoreType.DMA,
            pltpu.SemaphoreType.DMA,
        ]
        moves = jnp.array(self.schedule.moves, jnp.int32).reshape(-1)
        slots = self.pushed(
            self.kernel,
            slots,
            slots.shape,
            scratch,
            moves,
            interpret,
            collective_id,
            input_output_aliases={1: 0},
        )
        return self._unpack(slots, x, device, order)


class Spread(Routed):
    """Slots hold source shards, copied on their way. Wanted are those of devices that are
    offsets[n] farther back, in the slots arrives[n]."""

    form = "spread"
    spreads = True

    def _pack(self, x, device, order):
        """Return the slots as they are at first: the source shard in the first of them."""
        del device, order
        slots = jnp.zeros((self.schedule.slots, *self.slot.shape), x.dtype)
        return lax.dynamic_update_index_in_dim(slots, self.slot.packed(x), 0, 0)

    def _window(self, slot, box, sender):
        """Return the tile that is in a source shard, with what is beyond it in its window."""
        place = starts(box, self.host.source.box(sender))
        return lax.dynamic_slice(self.slot.unpacked(slot), place, self.window)
