"""The routed and spread forms: tiles, or source shards, go from device to device.

A v5e sends over a power of two of hops along one axis of its torus only, so that what is wanted
farther away goes on. The number of a device is taken as digits (stride, extent), and at a hop one
digit changes: on a torus of power-of-two extents, filled axis by axis, that is such a distance. In
a round devices send over several hops, both ways and along all axes at once; no round waits for the
one before (`pallas_steps`).
"""

import functools
import operator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from .boxes import ranges
from .pallas_peers import LOGICAL, each, is_full, is_traced, maximum
from .pallas_slots import Packed
from .pallas_steps import hop


class Sometimes(NamedTuple):
    """A copy that some devices do not make: `sends`, `comes`: whether this one sends, and gets, and
    a function that makes the copy as a sender has it, and as a receiver."""

    sends: tuple[Any, Any]
    comes: tuple[Any, Any]

    def start(self):
        """Start it."""
        some, make = self.sends
        pl.when(some)(lambda: make().start())

    def wait_send(self):
        """Wait until it has left."""
        some, make = self.sends
        pl.when(some)(lambda: make().wait_send())

    def wait_recv(self):
        """Wait until it has come."""
        some, make = self.comes
        pl.when(some)(lambda: make().wait_recv())


class Forwarding(Packed):
    """What the forms that forward have in common. Place n has at first what goes to the device that
    is offsets[n] farther on, and place arrives[n] in the end what comes from the one as much
    farther back."""

    spreads = False

    def __init__(self, peers, schedule, *given, powers_of_two=True, **settings):
        super().__init__(peers, *given, powers_of_two=powers_of_two, **settings)
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
                # Of what is moved twice in a round a half goes each way; of shards always.
                halved = self.slot.halves and (self.spreads or keys.count(key) > 1)
                for half in (int(part[0] > 0),) if halved else (0, 1):
                    offset, slot = before[key, half]
                    after = hop(offset, *way)
                    if self.shares:
                        held[key, half] = after, there if slot == here else None
                    else:
                        held[there, half] = after, slot
                # Both halves are of one tile, or all tiles are as large.
                come.append((offset, after))
        return held, come

    def pieces(self, place, offset, order=None):
        """Yield of every piece whether the device at a place sends it to the one so much farther
        on, and its box."""
        peers, schedule, goal = self.peers, self.schedule, self.schedule.farther(place, offset)
        inside = schedule.is_device(place) & schedule.is_device(goal)
        me, _ = peers.here(order, schedule.device(place))
        same, receiver = peers.here(order, schedule.device(goal))
        if not peers.one_order:
            inside = inside & peers.within(me, peers.source) & peers.within(receiver, peers.target)
            me, receiver = maximum(me, 0), maximum(receiver, 0)
        own, wanted = peers.forms.source_shard(me), peers.forms.target_shard(receiver)
        if peers.kept:
            inside = inside & (peers.holds(same, own) ^ True)
        for piece in range(peers.count):
            box = peers.tile(own, wanted, piece)
            sends = is_full(ranges(box)) & (peers.holder(own, receiver, piece) == me)
            yield sends & inside, box

    def has(self, place, offset, order=None):
        """Return whether the device at a place sends something to one so much farther on."""
        every = (sends for sends, _ in self.pieces(place, offset, order))
        return functools.reduce(operator.or_, every)

    def table(self, device, order=None):
        """Return what the kernel is told of moves: the schedule's rows, and where offsets share
        slots, in place of the last number, whether a device sends, and gets, what a row moves."""
        moves, offsets = self.schedule.moves, self.schedule.offsets
        if not self.shares:
            return moves
        (_, come), traced = self._carried(), is_traced(device)
        place = self.schedule.place(device)

        def ends(before, after, number):
            starts = (self.schedule.farther(place, gone, -1) for gone in (before, after))
            return [self.has(start, number, order) for start in starts]

        rows = [(*gone, offsets[row[-1]]) for gone, row in zip(come, moves, strict=True)]
        if traced:
            found = jax.vmap(ends)(*jnp.array(rows, jnp.int32).T)
            rows = jnp.array([row[:-1] for row in moves], jnp.int32)
            return jnp.concatenate([rows, jnp.int32(jnp.stack(found, axis=1))], axis=1)
        return [(*row[:-1], *map(int, ends(*gone))) for row, gone in zip(moves, rows, strict=True)]

    def pairs(self):
        """Return the ranks of senders and of receivers, of every hop, as arrays."""
        schedule, me = self.schedule, np.arange(len(self.moves.ranks))
        ends = [hop(schedule.place(me), *way) for hops in schedule.rounds for *way, _ in hops]
        sender, place = np.tile(me, len(ends)), np.concatenate(ends)
        there = np.broadcast_to(schedule.is_device(place), place.shape)
        return sender[there], schedule.device(place)[there]

    @functools.cached_property
    def steps(self):
        """What the kernel does one after another."""
        return self.schedule.steps(self.slot.span, self.slot.chunks)

    def pass_on(self, moves, slots, met, free, sent, received):
        """Make all steps; `slots`: whatever `_push` copies from and to, the others as kernels have
        them."""
        me = self.schedule.place(lax.axis_index(self.peers.axes))
        self._meet(me, met)

        def copies(number, act, place=me):
            """Act on the copies of a step; `place`: where they go, of no account to waits."""
            step, own, device = self.steps[number], np.int32(number), self.schedule.device(place)

            def one(move):
                act(self._push(moves, slots, step, move, device, sent.at[own], received.at[own]))

            each(step.end, one, step.first)

        start, leave, come = map(operator.methodcaller, ("start", "wait_send", "wait_recv"))
        for number, step in enumerate(self.steps):
            own = free.at[np.int32(number)]
            for other in step.left:
                copies(other, leave)
            if step.told:
                self._tell(hop(me, *step.back), own)
            for other in step.come:
                copies(other, come)
            if step.told:
                self._if_there(hop(me, *step.way), lambda own=own: pl.semaphore_wait(own, 1))
            copies(number, start, hop(me, *step.way))
        for wait, waited in (leave, "left"), (come, "come"):
            known = {other for step in self.steps for other in getattr(step, waited)}
            for number in range(len(self.steps)):
                if number not in known:
                    copies(number, wait)
        pl.semaphore_wait(met, self._partners(me))

    def _meet(self, me, met):
        """Tell the partners of this device that it has entered the kernel, and hear it of them; and
        tell them that it has heard, for which they wait before they end: none of them signals again
        before that, and so a device never holds two signals of another."""
        barrier = pltpu.get_barrier_semaphore()
        for partner in self.schedule.partners:
            self._tell(hop(me, *partner), barrier)
        pl.semaphore_wait(barrier, self._partners(me))
        for partner in self.schedule.partners:
            self._tell(hop(me, *partner), met)

    def _partners(self, me):
        """Return how many partners a device has."""
        partners, schedule = self.schedule.partners, self.schedule
        if not schedule.lines:
            return len(partners)
        return sum(jnp.int32(schedule.is_device(hop(me, *partner))) for partner in partners)

    def _tell(self, place, semaphore):
        """Signal the device at a place, if one is there."""
        self._if_there(
            place,
            lambda: pl.semaphore_signal(
                semaphore, 1, device_id=self.schedule.device(place), device_id_type=LOGICAL
            ),
        )

    def _if_there(self, place, act):
        """Act, if a device is at a place."""
        found = self.schedule.is_device(place)
        if found is True:
            act()
        else:
            pl.when(found)(act)

    def _push(self, moves, slots, step, move, receiver, sent, received):
        """Return the copy of a move."""
        raise NotImplementedError


class Routed(Forwarding):
    """Slots hold pieces: places are slots."""

    form = "routed"

    def kernel(self, moves, x, slots, met, free, sent, received):
        """Send on what has come, step by step.

        moves: the numbers of the schedule's, in SMEM; slots: in HBM, x what is in them at first;
        met: a semaphore; of every step one of `free`, which says that what is sent finds its slots
        free, and two DMA semaphores.
        """
        del x  # the same memory
        self.pass_on(moves, slots, met, free, sent, received)

    def _push(self, moves, slots, step, move, receiver, sent, received):
        """Return the copy of a move."""
        slot, columns = self.slot, 2 + self.slot.halves + len(self.slot.sized)
        first = (columns + 2 * self.shares) * move
        part = slot.part(moves, first, step.chunk)
        read, write = (slots.at[(moves[first + side], *part)] for side in range(2))
        to = {"device_id": receiver, "device_id_type": LOGICAL}
        make = functools.partial(pltpu.make_async_remote_copy, read, write, sent, received, **to)
        if not self.shares:
            return make()
        # The copy as a sender has it, and as a receiver.
        return Sometimes(*((moves[first + columns + gets] > 0, make) for gets in (0, 1)))

    def _start(self, x, device, order):
        """Return the slots as they are at first: in each the tile of one receiver."""
        peers, (me, _), at = self.peers, self.peers.here(order, device), self.schedule.place(device)
        own, within = peers.forms.source_shard(me), self.host.source.box(me)
        offsets = jnp.array(self.schedule.offsets, jnp.int32)
        count, listed = offsets.size, None
        if self.shares:  # those first that this device sends over
            sends = jax.vmap(lambda offset: self.has(at, offset, order))(offsets)
            count, listed = sends.sum(), jnp.argsort(jnp.logical_not(sends), stable=True)
            starts = jnp.array(self.schedule.starts, jnp.int32)

        def tile(place):
            number = place if listed is None else jnp.int32(listed[place])
            place = place if listed is None else starts[number]
            goal = self.schedule.farther(at, offsets[number])
            _, receiver = peers.here(order, self.schedule.device(goal))
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
        x, shape, kinds = self.padded(x), self.slot.shape, pltpu.SemaphoreType
        own = (len(self.steps),)
        table = jnp.array(self.table(device, call.order), jnp.int32)
        slots = call._replace(order=table.reshape(-1)).pushed(
            self.kernel,
            self._start(x, device, call.order),
            (schedule.slots, *shape),
            [kinds.REGULAR, kinds.REGULAR(own), kinds.DMA(own), kinds.DMA(own)],
            input_output_aliases={1: 0},
        )
        found = dict(zip(schedule.offsets, schedule.arrives, strict=True))
        # By offset; nothing comes over those that are not in the schedule.
        arrives = jnp.array([found.get(k, 0) for k in range(schedule.places)], jnp.int32)
        at = schedule.place(device)

        def window(_, piece):
            rank = peers.source_rank(piece.peer, call.order)
            slot = arrives[schedule.farther(at, schedule.place(rank), -1)]
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
