"""The routed form, and the common part of forms in which several devices forward data.

A v5e sends directly only over a power of two of hops along one axis of its torus, so devices
forward data for all other receivers. A device number is split into digits (stride, extent), and a
move changes one digit. On a torus of power-of-two extents, filled axis by axis, every move covers a
distance over which a v5e sends directly. In a round a device makes several moves, in both
directions and along all axes at once; no round waits for the previous one (`pallas_steps`).
"""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.pallas import tpu as pltpu

from .boxes import ranges
from .pallas_integers import is_full, maximum, starts
from .pallas_peers import is_traced
from .pallas_program import PallasProgram
from .pallas_steps import hop


class Forwarding(PallasProgram):
    """The common part of forwarding forms. Place n starts with the data for the device offsets[n]
    ahead, and place arrives[n] ends with the data from the device offsets[n] behind."""

    spreads = False

    def __init__(self, kernel, peers, schedule, slot, *, view, powers_of_two=True, **settings):
        super().__init__(peers, view, powers_of_two=powers_of_two, **settings)
        self.kernel, self.schedule, self.slot, self.steps = kernel, schedule, slot, schedule.steps
        self.shares = schedule.starts is not None

    def fault(self):
        """Return the first fault in the final contents of slots, or "". Contents are relative to
        the device, so they are the same on all devices."""
        if fault := super().fault():
            return fault
        schedule, (held, _) = self.schedule, self._carried()
        for number, slot in enumerate(schedule.arrives):
            item, first = (number, schedule.starts[number]) if self.shares else (None, number)
            wanted = schedule.offsets[number], 0 if self.spreads else first
            for found in (held.get((slot, item, half)) for half in (0, 1)):
                if found != wanted:
                    return f"slot {slot} holds the data of {found}, expected {wanted}"
        return ""

    def _carried(self):
        """Return two values: a dict of the contents of slots, and a list of the distances of moves.
        The dict gives, by (slot, item, half), the distance that the data has travelled and its
        first slot; the item is the number of the offset if offsets share slots, else None. The list
        gives, for every move, the distance that its data has travelled before and after it."""
        schedule, come = self.schedule, []
        slots = schedule.starts or range(schedule.slots)
        items = range(len(slots)) if self.shares else [None] * len(slots)
        first = zip(slots, items, strict=True)
        held = {(slot, item, half): (0, slot) for slot, item in first for half in (0, 1)}
        moves = zip(schedule.ways, schedule.moves, strict=True)
        for _, some in itertools.groupby(moves, lambda move: move[0][0]):
            before, made = dict(held), list(some)
            keys = [(row[0], row[-1] if self.shares else None) for _, row in made]
            for key, ((_, way), (_, there, *part)) in zip(keys, made, strict=True):
                # Data that moves twice in a round is split, one half each way. Source shards are
                # always split.
                halved = schedule.halves and (self.spreads or keys.count(key) > 1)
                for half in (int(part[0] > 0),) if halved else (0, 1):
                    offset, slot = before.get((*key, half), (0, None))
                    held[there, key[1], half] = hop(offset, *way), slot
                # One half is enough: both belong to one tile, or all tiles have equal size.
                come.append((offset, hop(offset, *way)))
        return held, come

    def has(self, place, offset, order=None):
        """Return whether the device at a place sends any piece to the device `offset` ahead."""
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

        def sends(piece):
            full = is_full(ranges(peers.tile(own, wanted, piece)))
            return full & (peers.holder(own, receiver, piece) == me)

        return inside & (sum(map(sends, range(peers.count))) > 0)

    def table(self, device, order=None):
        """Return the kernel's table of moves: the schedule's rows. If offsets share slots, two
        flags replace the last number of a row: whether the device sends data in this move, and
        whether it receives data."""
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
        """Return the ranks of senders and receivers of every hop, as arrays."""
        from .pallas_hops import pairs_of_hops  # only on a TPU v5e

        return pairs_of_hops(self)


class Routed(Forwarding):
    """A forwarding form whose places are slots, each with a tile or a piece of it, which XLA packs
    and unpacks. `window`: a shape into which every tile fits; `source_reach`, `target_reach`: the
    extents to which windows reach in the source and the target shard, if beyond its end."""

    form = "routed"

    def __init__(self, *given, window, source_reach=None, target_reach=None, **settings):
        super().__init__(*given, view=tuple(range(len(window))), **settings)
        self._window, self._source_reach = window, source_reach
        self._target_reach = target_reach or self.target_shape

    def _start(self, x, device, order):
        """Return the initial slots: each has the tile for one receiver."""
        peers, (me, _), at = self.peers, self.peers.here(order, device), self.schedule.place(device)
        own, within = peers.forms.source_shard(me), self.host.source.box(me)
        offsets = jnp.array(self.schedule.offsets, jnp.int32)
        places = jnp.array(self.schedule.starts or range(offsets.size), jnp.int32)
        count, numbers = offsets.size, jnp.arange(offsets.size)
        if self.shares:  # pack only for offsets over which this device sends
            sends = jax.vmap(lambda offset: self.has(at, offset, order))(offsets)
            count, numbers = sends.sum(), jnp.argsort(jnp.logical_not(sends), stable=True)

        def pack(number, slots):
            number = jnp.int32(numbers[number])
            goal = self.schedule.farther(at, offsets[number])
            _, receiver = peers.here(order, self.schedule.device(goal))
            # If other devices hold a tile too, this device sends one piece of it.
            sends = [peers.holder(own, receiver, piece) == me for piece in range(peers.count)]
            piece = sum(piece * jnp.int32(yes) for piece, yes in enumerate(sends))
            box = peers.tile(own, peers.forms.target_shard(receiver), piece)
            slot = self.slot.packed(self._cut(x, box, within))
            return lax.dynamic_update_index_in_dim(slots, slot, places[number], 0)

        slots = jnp.zeros((self.schedule.slots, *self.slot.shape), x.dtype)
        return lax.fori_loop(np.int32(0), jnp.int32(count), pack, slots)

    def _cut(self, x, box, within):
        """Return the window that starts at a box, cut from the shard that covers box `within`."""
        return lax.dynamic_slice(x, starts(box, within), self._window)

    def _tile(self, slot, _):
        """Return the tile in a slot, with the rest of its window."""
        return self.slot.unpacked(slot)

    def moved(self, x, call):
        """Return the target shard with arbitrary padding."""
        peers, schedule, device = self.peers, self.schedule, lax.axis_index(self.peers.axes)
        (me, receiver), at = peers.here(call.order, device), schedule.place(device)
        pairs = zip(x.shape, self._source_reach or x.shape, strict=True)
        x = jnp.pad(x, [(0, reach - size) for size, reach in pairs])
        own, kinds = (len(self.steps),), pltpu.SemaphoreType
        table = jnp.array(self.table(device, call.order), jnp.int32)
        slots = call._replace(order=table.reshape(-1)).pushed(
            self.kernel,
            self._start(x, device, call.order),
            (schedule.slots, *self.slot.shape),
            [kinds.REGULAR, kinds.REGULAR(own), kinds.DMA(own), kinds.DMA(own)],
            input_output_aliases={1: 0},
        )
        found = dict(zip(schedule.offsets, schedule.arrives, strict=True))
        # Final slot by offset; nothing arrives over offsets missing from the schedule.
        count = math.prod(extent for _, extent in schedule.digits)
        arrives = jnp.array([found.get(k, 0) for k in range(count)], jnp.int32)

        def unpack(number, y):
            # Tiles come in row-major order and a window exceeds its tile only towards higher
            # indices, so later tiles overwrite the excess.
            piece = peers.incoming(receiver, me, number)
            rank = peers.source_rank(piece.peer, call.order)
            slot = arrives[schedule.farther(at, schedule.place(rank), -1)]
            tile = self._tile(lax.dynamic_index_in_dim(slots, slot, 0, keepdims=False), piece)
            if peers.kept:
                kept = self._cut(x, piece.box, self.host.source.box(me))
                tile = jnp.where(piece.moves, tile, kept)
            start = starts(piece.box, self.host.target.box(receiver))
            return lax.dynamic_update_slice(y, tile, start)

        count = jnp.int32(peers.incoming_count(receiver))
        y = lax.fori_loop(np.int32(0), count, unpack, jnp.zeros(self._target_reach, x.dtype))
        return lax.slice(y, (0,) * y.ndim, self.target_shape)
