"""The routed and spread forms: tiles, or source shards, go from device to device.

A v5e sends over a power of two of hops along one axis of its torus only, so that what is wanted
farther away goes on. The number of a device is taken as digits (stride, extent), and at a hop one
digit changes: on a torus of power-of-two extents, filled axis by axis, that is such a distance. In
a round devices send over several hops, both ways and along all axes at once.
"""

import functools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from .pallas_peers import LOGICAL, div, each, rem
from .pallas_slots import Packed


def hop(device, stride, extent, by):
    """Return the device whose digit (stride, extent) is `by` higher, modulo the extent."""
    digit = rem(div(device, stride), extent)
    return device + (rem(digit + by, extent) - digit) * stride


class Schedule(NamedTuple):
    """Who sends which slots on to whom, round by round.

    `digits`: those of devices; `rounds`: of each the hops (stride, extent, by, number of moves);
    `moves`: (slot it leaves, slot it comes to, where what is sent of it begins if that may be a
    half, its extents); `offsets`: how much farther
    on, digit by digit, the devices are that slots are for, or have wanted of; `arrives`: the slots
    in which, in the end, what comes from the devices as much farther back is; `partners`: the hops
    to those that a device sends to or gets of; `slots`: how many there are."""

    digits: tuple[tuple[int, int], ...]
    offsets: tuple[int, ...]
    arrives: tuple[int, ...]
    rounds: tuple[tuple[tuple[int, int, int, int], ...], ...]
    moves: tuple[tuple[int, ...], ...]
    partners: tuple[tuple[int, int, int], ...]
    slots: int

    def farther(self, device, offset, sign=1):
        """Return the device that is so much farther on, digit by digit; by -1, farther back: that
        is how much farther on the device is than the one of that number."""
        found = 0
        for stride, extent in self.digits:
            digit, by = (rem(div(number, stride), extent) for number in (device, offset))
            found = found + rem(digit + extent + sign * by, extent) * stride
        return found


class Routed(Packed):
    """Slots hold pieces: slot n at first what goes to the device that is offsets[n] farther on, and
    slot arrives[n] in the end what comes from the one as much farther back."""

    form = "routed"
    spreads = False

    def __init__(self, peers, schedule, *given, **settings):
        super().__init__(peers, *given, powers_of_two=True, **settings)
        self.schedule = schedule

    def fault(self):
        """Return what is wrong with where slots come, on all devices alike; "" if nothing is."""
        # What is in each half of a slot: how much farther back it comes from, and the slot it left
        # there. Of a slot that is left twice in a round a half goes each way.
        schedule, moves = self.schedule, iter(self.schedule.moves)
        held = {(slot, half): (0, slot) for slot in range(schedule.slots) for half in (0, 1)}
        for hops in schedule.rounds:
            before = dict(held)
            made = [(way, next(moves)) for *way, count in hops for _ in range(count)]
            left = [here for _, (here, *_) in made]
            for way, (here, there, *part) in made:
                halved = self.slot.halves and left.count(here) > 1
                for half in (int(part[0] > 0),) if halved else (0, 1):
                    offset, slot = before[here, half]
                    held[there, half] = hop(offset, *way), slot
        ends = zip(schedule.offsets, schedule.arrives, strict=True)
        for number, (offset, slot) in enumerate(ends):
            wanted = offset, 0 if self.spreads else number
            for half in (0, 1):
                if held[slot, half] != wanted:
                    return f"slot {slot} holds what left {held[slot, half]}, expected {wanted}"
        return ""

    def pairs(self):
        """Return the ranks of senders and of receivers, of every hop, as arrays."""
        me = np.arange(len(self.moves.ranks))
        hops = [hop(me, *way) for hops in self.schedule.rounds for *way, _ in hops]
        return np.tile(me, len(hops)), np.concatenate(hops)

    def kernel(self, moves, x, slots, ready, sent, received):
        """Tell the devices of all rounds that this one has entered the kernel, hear it of them, and
        make the hops of every round.

        moves: the numbers of the schedule's, in SMEM; slots: in HBM, x what is in them at first;
        ready: a semaphore a round; sent, received: DMA semaphores.
        """
        del x  # the same memory
        me, begin = lax.axis_index(self.peers.axes), 0
        # None of its partners ends the call before it has heard of this device, and so a device
        # never holds two signals of another.
        barrier = pltpu.get_barrier_semaphore()
        for partner in self.schedule.partners:
            device = hop(me, *partner)
            pl.semaphore_signal(barrier, 1, device_id=device, device_id_type=LOGICAL)
        pl.semaphore_wait(barrier, len(self.schedule.partners))

        def push(move, receiver):
            """Return the copy of a move."""
            first = (2 + self.slot.halves + len(self.slot.sized)) * move
            part = self.slot.part(moves, first)
            read, write = (slots.at[(moves[first + end], *part)] for end in range(2))
            return pltpu.make_async_remote_copy(
                read, write, sent, received, device_id=receiver, device_id_type=LOGICAL
            )

        def start(receiver, move):
            push(move, receiver).start()

        for number, hops in enumerate(self.schedule.rounds):
            # All that this device has sent has left and all that was to come has come: what comes
            # now finds its slots free.
            free, end = ready.at[np.int32(number)], begin
            for stride, extent, by, _ in hops:
                sender = hop(me, stride, extent, extent - by)
                pl.semaphore_signal(free, 1, device_id=sender, device_id_type=LOGICAL)
            pl.semaphore_wait(free, len(hops))
            for *way, count in hops:
                each(end + count, functools.partial(start, hop(me, *way)), end)
                end += count
            # All devices make the same moves: what comes is as much as what goes.
            each(end, lambda move: push(move, me).wait_send(), begin)
            each(end, lambda move: push(move, me).wait_recv(), begin)
            begin = end

    def _start(self, x, device, order):
        """Return the slots as they are at first: in each the tile of one receiver."""
        peers, (me, _) = self.peers, self.peers.here(order, device)
        own, within = peers.forms.source_shard(me), self.host.source.box(me)
        offsets = jnp.array(self.schedule.offsets, jnp.int32)

        def tile(number):
            _, receiver = peers.here(order, self.schedule.farther(device, offsets[number]))
            # Of a tile that others hold too this device sends one piece.
            sends = [peers.holder(own, receiver, piece) == me for piece in range(peers.count)]
            piece = sum(number * jnp.int32(yes) for number, yes in enumerate(sends))
            box = peers.tile(own, peers.forms.target_shard(receiver), piece)
            return number, self.window_at(x, box, within)

        return self.filled(self.schedule.slots, len(self.schedule.offsets), tile, x.dtype)

    def _window(self, slot, _):
        """Return the tile that a slot holds, with what is beyond it in its window."""
        return self.slot.unpacked(slot)

    def moved(self, x, call):
        """Return the target shard, its padding left as it comes."""
        peers, schedule, device = self.peers, self.schedule, lax.axis_index(self.peers.axes)
        me, receiver = peers.here(call.order, device)
        x, shape, dma = self.padded(x), self.slot.shape, pltpu.SemaphoreType.DMA
        ready = pltpu.SemaphoreType.REGULAR((len(schedule.rounds),))
        slots = call._replace(order=jnp.array(schedule.moves, jnp.int32).reshape(-1)).pushed(
            self.kernel,
            self._start(x, device, call.order),
            (schedule.slots, *shape),
            [ready, dma, dma],
            input_output_aliases={1: 0},
        )
        found = dict(zip(schedule.offsets, schedule.arrives, strict=True))
        # By offset; nothing comes over those that are not in the schedule.
        arrives = jnp.array([found.get(k, 0) for k in range(len(self.moves.ranks))], jnp.int32)

        def window(_, piece):
            rank = peers.source_rank(piece.peer, call.order)
            slot = arrives[schedule.farther(device, rank, -1)]
            slot = lax.dynamic_index_in_dim(slots, slot, 0, keepdims=False)
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

    def _start(self, x, *_):
        """Return the slots as they are at first: the source shard in the first of them."""
        return self.filled(self.schedule.slots, 1, lambda number: (number, x), x.dtype)

    def _window(self, slot, piece):
        """Return the tile that is in a source shard, with what is beyond it in its window."""
        return self.window_at(self.slot.unpacked(slot), piece.box, self.host.source.box(piece.peer))
