"""The routed and spread forms: tiles, or source shards, go from device to device.

A v5e sends over a power of two of hops along one axis of its torus only, so that what is wanted
farther away goes on. The number of a device is taken as digits (stride, extent), and at a hop one
digit changes: on a torus of power-of-two extents, filled axis by axis, that is such a distance. In
a round devices send over several hops, both ways and along all axes at once; no round waits for the
one before (`pallas_steps`).
"""

import functools
import itertools
import operator

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.pallas import tpu as pltpu

from .boxes import ranges
from .pallas_peers import is_full, is_traced, maximum
from .pallas_slots import Packed
from .pallas_steps import hop


class Forwarding(Packed):
    """What the forms that forward have in common. Place n has at first what goes to the device that
    is offsets[n] farther on, and place arrives[n] in the end what comes from the one as much
    farther back."""

    spreads = False

    def __init__(self, kernel, peers, schedule, *given, powers_of_two=True, **settings):
        super().__init__(peers, *given, powers_of_two=powers_of_two, **settings)
        self.kernel, self.schedule, self.steps = kernel, schedule, schedule.steps
        self.shares = schedule.starts is not None

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
        schedule, come = self.schedule, []
        first = schedule.starts or range(schedule.slots)
        held = {(key, half): (0, slot) for key, slot in enumerate(first) for half in (0, 1)}
        moves = zip(schedule.ways, schedule.moves, strict=True)
        for _, some in itertools.groupby(moves, lambda move: move[0][0]):
            before, made = dict(held), list(some)
            keys = [row[-1] if self.shares else row[0] for _, row in made]
            for key, ((_, way), (here, there, *part)) in zip(keys, made, strict=True):
                # Of what is moved twice in a round a half goes each way; of shards always.
                halved = schedule.halves and (self.spreads or keys.count(key) > 1)
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
        ends = [
            hop(schedule.place(me), *way) for way in sorted({step.way for step in schedule.steps})
        ]
        sender, place = np.tile(me, len(ends)), np.concatenate(ends)
        there = np.broadcast_to(schedule.is_device(place), place.shape)
        return sender[there], schedule.device(place)[there]


class Routed(Forwarding):
    """Slots hold pieces: places are slots."""

    form = "routed"

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
