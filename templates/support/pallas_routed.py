"""The routed and spread forms: tiles, or source shards, go from device to device.

A v5e sends over a power of two of hops along one axis of its torus only, so that what is wanted
farther away goes on. The number of a device is taken as digits (stride, extent), and at a hop one
digit changes: on a torus of power-of-two extents, filled axis by axis, that is such a distance.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from .pallas_peers import LOGICAL, div, each, rem
from .pallas_slots import Packed


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


class Routed(Packed):
    """Slots hold pieces: slot n at first what goes to the device that is offsets[n] farther on, and
    slot arrives[n] in the end what comes from the one as much farther back. `slot_bytes`: what a
    slot takes of HBM."""

    form = "routed"
    spreads = False

    def __init__(self, peers, schedule, *given, slot_bytes, **settings):
        super().__init__(peers, *given, powers_of_two=True, **settings)
        self.schedule, self.slot_bytes = schedule, slot_bytes

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

    def _start(self, x, device, order):
        """Return the slots as they are at first: in each the tile of one receiver."""
        peers, (me, _) = self.peers, self.peers.here(order, device)
        own, within = peers.forms.source_shard(me), self.host.source.box(me)
        offsets = jnp.array(self.schedule.offsets, jnp.int32)

        def tile(number):
            _, receiver = peers.here(order, self.schedule.farther(device, offsets[number]))
            piece = None
            if peers.pieces:
                # Of a tile that others hold too this device sends one piece.
                sends = [peers.holder(own, receiver, each) == me for each in range(peers.count)]
                piece = sum(each * jnp.int32(yes) for each, yes in enumerate(sends))
            box = peers.tile(own, peers.forms.target_shard(receiver), piece)
            return number, self.window_at(x, box, within)

        return self.filled(self.schedule.slots, len(self.schedule.offsets), tile, x.dtype)

    def _window(self, slot, piece):
        """Return the tile that a slot holds, with what is beyond it in its window."""
        del piece
        return self.slot.unpacked(slot)

    def moved(self, x, order, interpret, collective_id):
        """Return the target shard, its padding left as it comes."""
        peers, device = self.peers, lax.axis_index(self.peers.axes)
        me, receiver = peers.here(order, device)
        x, slots = self.padded(x), self.schedule.slots
        scratch = [
            pltpu.SemaphoreType.REGULAR((len(self.schedule.rounds),)),
            pltpu.SemaphoreType.DMA,
            pltpu.SemaphoreType.DMA,
        ]
        slots = self.pushed(
            self.kernel,
            self._start(x, device, order),
            (slots, *self.slot.shape),
            scratch,
            jnp.array(self.schedule.moves, jnp.int32).reshape(-1),
            interpret,
            collective_id,
            input_output_aliases={1: 0},
        )
        found = dict(zip(self.schedule.offsets, self.schedule.arrives, strict=True))
        # By offset; nothing comes over those that are not in the schedule.
        arrives = jnp.array([found.get(k, 0) for k in range(len(peers.devices))], jnp.int32)

        def window(number, piece):
            del number
            offset = self.schedule.offset(device, peers.source_rank(piece.peer, order))
            slot = lax.dynamic_index_in_dim(slots, arrives[offset], 0, keepdims=False)
            found = self._window(slot, piece)
            if not peers.kept:
                return found
            kept = self.window_at(x, piece.box, self.host.source.box(me))
            return jnp.where(piece.moves, found, kept)

        return self.put_together(me, receiver, window, x.dtype)


class Spread(Routed):
    """Slots hold source shards, copied on their way. Wanted are those of devices that are
    offsets[n] farther back, in the slots arrives[n]."""

    form = "spread"
    spreads = True

    def _start(self, x, device, order):
        """Return the slots as they are at first: the source shard in the first of them."""
        del device, order
        return self.filled(self.schedule.slots, 1, lambda number: (number, x), x.dtype)

    def _window(self, slot, piece):
        """Return the tile that is in a source shard, with what is beyond it in its window."""
        return self.window_at(self.slot.unpacked(slot), piece.box, self.host.source.box(piece.peer))
