"""The routed and spread forms: tiles, or source shards, go from device to device.

A v5e sends over a power of two of hops along one axis of its torus only, so that what is wanted
farther away goes on. The number of a device is taken as digits (stride, extent), and at a hop one
digit changes: on a torus of power-of-two extents, filled axis by axis, that is such a distance. In
a round devices send over several hops, both ways and along all axes at once.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from .boxes import ranges
from .pallas_peers import LOGICAL, div, each, is_full, is_traced, maximum, rem
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
    to those that a device sends to or gets of; `slots`: how many there are; `starts`: where not
    every device sends over every offset, the slots in which what goes over each is at first, and
    the moves end with its number."""

    digits: tuple[tuple[int, int], ...]
    offsets: tuple[int, ...]
    arrives: tuple[int, ...]
    rounds: tuple[tuple[tuple[int, int, int, int], ...], ...]
    moves: tuple[tuple[int, ...], ...]
    partners: tuple[tuple[int, int, int], ...]
    slots: int
    starts: tuple[int, ...] | None = None

    def farther(self, device, offset, sign=1):
        """Return the device that is so much farther on, digit by digit; by -1, farther back: that
        is how much farther on the device is than the one of that number."""
        found = 0
        for stride, extent in self.digits:
            digit, by = (rem(div(number, stride), extent) for number in (device, offset))
            found = found + rem(digit + extent + sign * by, extent) * stride
        return found


class Sometimes(NamedTuple):
    """A copy that some devices do not make: `sends`, `comes`: whether this one sends, and gets."""

    copy: Any
    sends: Any
    comes: Any

    def start(self):
        """Start it."""
        pl.when(self.sends > 0)(self.copy.start)

    def wait_send(self):
        """Wait until it has left."""
        pl.when(self.sends > 0)(self.copy.wait_send)

    def wait_recv(self):
        """Wait until it has come."""
        pl.when(self.comes > 0)(self.copy.wait_recv)


class Routed(Packed):
    """Slots hold pieces: slot n at first what goes to the device that is offsets[n] farther on, and
    slot arrives[n] in the end what comes from the one as much farther back."""

    form = "routed"
    spreads = False

    def __init__(self, peers, schedule, *given, **settings):
        super().__init__(peers, *given, powers_of_two=True, **settings)
        self.schedule, self.shares = schedule, schedule.starts is not None

    def fault(self):
        """Return what is wrong with where slots come, on all devices alike; "" if nothing is."""
        schedule, (held, _) = self.schedule, self._carried()
        ends = zip(schedule.offsets, schedule.arrives, strict=True)
        for number, (offset, slot) in enumerate(ends):
            place, wanted = slot, (offset, 0 if self.spreads else number)
            if self.shares:
                place, wanted = number, (offset, slot)
            for half in (0, 1):
                if held[place, half] != wanted:
                    return f"slot {slot} holds what left {held[place, half]}, expected {wanted}"
        return ""

    def _carried(self):
        """Return what is in each half of a slot in the end, how much farther back it comes from and
        the slot it left there, and of every move how far what it moves has come before it, and
        after it. Where offsets share slots: of each number how far it has come, and its slot."""
        schedule, moves = self.schedule, iter(self.schedule.moves)
        first = schedule.starts or range(schedule.slots)
        held = {(key, half): (0, slot) for key, slot in enumerate(first) for half in (0, 1)}
        come = []
        for hops in schedule.rounds:
            before = dict(held)
            made = [(way, next(moves)) for *way, count in hops for _ in range(count)]
            keys = [row[-1] if self.shares else row[0] for _, row in made]
            for key, (way, (here, there, *part)) in zip(keys, made, strict=True):
                # Of what is moved twice in a round a half goes each way.
                halved = self.slot.halves and keys.count(key) > 1
                for half in (int(part[0] > 0),) if halved else (0, 1):
                    offset, slot = before[key, half]
                    after = hop(offset, *way)
                    if self.shares:
                        held[key, half] = after, there if slot == here else None
                    else:
                        held[there, half] = after, slot
                come.append((offset, after))
        return held, come

    def has(self, device, offset, order=None):
        """Return whether a device sends something to the one that is so much farther on."""
        peers, (me, _) = self.peers, self.peers.here(order, device)
        same, receiver = peers.here(order, self.schedule.farther(device, offset))
        inside = True
        if not peers.one_order:
            inside = peers.within(me, peers.source) & peers.within(receiver, peers.target)
            me, receiver = maximum(me, 0), maximum(receiver, 0)
        own, wanted = peers.forms.source_shard(me), peers.forms.target_shard(receiver)
        sends = False
        for piece in range(peers.count):
            full = is_full(ranges(peers.tile(own, wanted, piece)))
            sends = sends | (full & (peers.holder(own, receiver, piece) == me))
        return sends & inside & (peers.holds(same, own) ^ True) if peers.kept else sends & inside

    def table(self, device, order=None):
        """Return what the kernel is told of moves: the schedule's rows, and where offsets share
        slots, in place of the last number, whether a device sends, and gets, what a row moves."""
        moves, offsets = self.schedule.moves, self.schedule.offsets
        if not self.shares:
            return moves
        (_, come), traced = self._carried(), is_traced(device)

        def ends(before, after, number):
            starts = (self.schedule.farther(device, gone, -1) for gone in (before, after))
            return [self.has(start, number, order) for start in starts]

        rows = [(*gone, offsets[row[-1]]) for gone, row in zip(come, moves, strict=True)]
        if traced:
            found = jax.vmap(ends)(*jnp.array(rows, jnp.int32).T)
            rows = jnp.array([row[:-1] for row in moves], jnp.int32)
            return jnp.concatenate([rows, jnp.int32(jnp.stack(found, axis=1))], axis=1)
        return [(*row[:-1], *map(int, ends(*gone))) for row, gone in zip(moves, rows, strict=True)]

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
            columns = 2 + self.slot.halves + len(self.slot.sized)
            first = (columns + 2 * self.shares) * move
            part = self.slot.part(moves, first)
            read, write = (slots.at[(moves[first + end], *part)] for end in range(2))
            copy = pltpu.make_async_remote_copy(
                read, write, sent, received, device_id=receiver, device_id_type=LOGICAL
            )
            flags = (moves[first + columns + end] for end in range(2))
            return Sometimes(copy, *flags) if self.shares else copy

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
        count, listed = offsets.size, None
        if self.shares:  # those first that this device sends over
            sends = jax.vmap(lambda offset: self.has(device, offset, order))(offsets)
            count, listed = sends.sum(), jnp.argsort(jnp.logical_not(sends), stable=True)
            starts = jnp.array(self.schedule.starts, jnp.int32)

        def tile(place):
            number = place if listed is None else jnp.int32(listed[place])
            place = place if listed is None else starts[number]
            _, receiver = peers.here(order, self.schedule.farther(device, offsets[number]))
            # Of a tile that others hold too this device sends one piece.
            sends = [peers.holder(own, receiver, piece) == me for piece in range(peers.count)]
            piece = sum(number * jnp.int32(yes) for number, yes in enumerate(sends))
            box = peers.tile(own, peers.forms.target_shard(receiver), piece)
            return place, self.window_at(x, box, within)

        return self.filled(self.schedule.slots, count, tile, x.dtype)

    def _window(self, slot, _):
        """Return the tile that a slot holds, with what is beyond it in its window."""
        return self.slot.unpacked(slot)

    def moved(self, x, call):
        """Return the target shard, its padding left as it comes."""
        peers, schedule, device = self.peers, self.schedule, lax.axis_index(self.peers.axes)
        me, receiver = peers.here(call.order, device)
        x, shape, dma = self.padded(x), self.slot.shape, pltpu.SemaphoreType.DMA
        ready = pltpu.SemaphoreType.REGULAR((len(schedule.rounds),))
        table = jnp.array(self.table(device, call.order), jnp.int32)
        slots = call._replace(order=table.reshape(-1)).pushed(
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
