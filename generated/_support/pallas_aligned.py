"""The forms that forward parts of shards, as they are: nothing is packed, nothing put together.

Gathered: devices that send to each other have one target shard, of whole source shards. So what a
device sends on is part of what it wants itself, and stands in the same place on both.

Relayed: tiles, all of one shape, leave source shards where they stand, and end where they belong in
target shards; in between they are in slots.
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
from .pallas_peers import LOGICAL, is_full, is_traced, maximum, multiple
from .pallas_routed import Forwarding, Sometimes
from .pallas_slots import starts
from .pallas_steps import hop

FLAT_TILE = 4096
"""Elements of a tile of memory of one dimension: of bytes, a multiple of those of wider ones."""


class OneOf(NamedTuple):
    """A copy that is one of several, of as many elements each and on the same semaphores, so that
    to wait for any is to wait for it. `copies`: of each whether it is the one, and a function that
    makes it: Pallas complains of copies that are made and not used."""

    copies: tuple[tuple[Any, Any], ...]

    def start(self):
        """Start it."""
        for is_it, make in self.copies:
            pl.when(is_it)(lambda make=make: make().start())

    def wait_send(self):
        """Wait until it has left."""
        self.copies[0][1]().wait_send()

    def wait_recv(self):
        """Wait until it has come."""
        self.copies[0][1]().wait_recv()


class Aligned(Forwarding):
    """What both forms have in common. `slot`: the shape of what goes, a box of a shard."""

    packed = False
    kernel: Any

    def __init__(self, peers, schedule, slot, view, **settings):
        super().__init__(peers, schedule, slot, slot.held, view=view, **settings)

    @property
    def _columns(self):
        """How many numbers of a move come before where it starts."""
        return len(self.schedule.moves[0]) + self.shares

    def _split(self, local):
        """Return the dimensions, of kernels, along which a shard has several boxes."""
        pairs = enumerate(zip(self.slot.shape, local, strict=True))
        return [axis for axis, (own, whole) in pairs if own != whole]

    def _box(self, shard, split, moves, first, part):
        """Return the part of a shard that a part of a box is; the numbers from `first` on say where
        that starts, along the dimensions that are split."""
        found = list(part)
        for column, axis in enumerate(split):
            extent, taken = self.slot.shape[axis], part[axis]
            start, begin, size = multiple(moves[first + column], extent), 0, extent
            if not isinstance(taken, slice):
                begin, size = taken.start, taken.size
            found[axis] = pl.ds(start + begin, size)
        return shard.at[tuple(found)]

    def _sent(self, copies, receiver, sent, received):
        """Return the one of several copies, (whether it is the one, from, to), to a device."""
        to = {"device_id": receiver, "device_id_type": LOGICAL}
        make = functools.partial(pltpu.make_async_remote_copy, **to)
        made = [(is_it, functools.partial(make, *ends, sent, received)) for is_it, *ends in copies]
        return OneOf(tuple(made)) if len(made) > 1 else made[0][1]()

    def moved(self, x, call, *beside):
        """Return the target shard; `beside`: shapes of what the kernel has besides."""
        device, kinds = lax.axis_index(self.peers.axes), pltpu.SemaphoreType
        count = len(self.steps)
        table = jnp.array(self.table(device, call.order), jnp.int32)
        y = call._replace(order=table.reshape(-1)).pushed(
            self.kernel,
            lax.transpose(x, self.view),
            self.target_shape,
            [kinds.REGULAR, kinds.REGULAR((count,)), kinds.DMA((count,)), kinds.DMA((count + 1,))],
            *beside,
        )
        return lax.transpose(y, self.inverse)


class Gathered(Aligned):
    """Places are boxes of the target shard, one for each source shard in it: that of the device
    which is as much farther back as what comes to the place has come. Place 0 is that of the
    device's own."""

    form = "gathered"
    spreads = True

    def table(self, device, order=None):
        """Return what the kernel is told of moves: the schedule's rows, and then where in the
        target shard what each moves starts, along dimensions that are split."""
        _, come = self._carried()
        source, target = self.host.source, self.host.target
        within = target.box(self.peers.here(order, device)[1])

        def place(offset):
            origin, _ = self.peers.here(order, self.schedule.farther(device, offset, -1))
            low = starts(source.box(origin), within)
            return [low[self.view[axis]] for axis in self._split(self.target_shape)]

        rows, offsets = self.schedule.moves, [before for before, _ in come]
        if not is_traced(device):
            return [(*row, *place(offset)) for row, offset in zip(rows, offsets, strict=True)]
        found = jnp.stack(jax.vmap(place)(jnp.array(offsets, jnp.int32)), axis=1)
        return jnp.concatenate([jnp.array(rows, jnp.int32), found], axis=1)

    def kernel(self, moves, x, y, met, free, sent, received):
        """Send on what has come to the target shard, step by step, and copy the device's own.

        moves: their numbers, in SMEM; x, y: source and target shard; met, free, sent: as where
        slots are sent; received: too, and one more, of the own shard.
        """
        first = self._columns  # a move of the own shard: nothing else is there at first
        own = (slice(None),) * len(self.view)
        kept = received.at[np.int32(len(self.steps))]
        there = self._box(y, self._split(self.target_shape), moves, first, own)
        keep = pltpu.make_async_copy(x, there, kept)
        keep.start()
        self.pass_on(moves, (x, y), met, free, sent, received)
        keep.wait()

    def _push(self, moves, shards, step, move, receiver, sent, received):
        """Return the copy of a move."""
        x, y = shards
        split = self._split(self.target_shape)
        first = (self._columns + len(split)) * move
        part = self.slot.part(moves, first, step.chunk)
        there = self._box(y, split, moves, first + self._columns, part)
        found = {here == 0 for here, *_ in self.schedule.moves[step.first : step.end]}
        is_own = moves[first] == 0
        copies = {True: (is_own, x.at[part], there), False: (is_own ^ True, there, there)}
        return self._sent([copies[own] for own in found], receiver, sent, received)


class Relayed(Aligned):
    """Of m offsets place n is at first the tile of the source shard that goes over offset n, and
    place m + n in the end that of the target shard that has come over it; what is on its way is in
    slots, the places from 2 * m on."""

    form = "relayed"

    @property
    def _ends(self):
        """The first place of a target shard, and the first slot."""
        count = len(self.schedule.offsets)
        return count, 2 * count

    def _splits(self):
        """Return the dimensions along which source shards are split, and target shards."""
        local = self.host.source.local or (1,)
        return self._split([local[axis] for axis in self.view]), self._split(self.target_shape)

    def table(self, device, order=None):
        """Return what the kernel is told of moves: the numbers that all forms that forward have,
        and then where in the source shard, and in that target shard, what each moves starts, if
        there, else 0; in the end whether the device keeps a tile, and where that does."""
        schedule, (arrived, slots) = self.schedule, self._ends
        me, offsets, moves = schedule.place(device), schedule.offsets, schedule.moves
        ways = [way for hops in schedule.rounds for *way, count in hops for _ in range(count)]
        # Of every move whether it leaves a source shard, and over which offset; whether it comes to
        # a target shard, over which hop, and of which offset.
        ends = [
            (
                here < arrived,
                offsets[here] if here < arrived else 0,
                there < slots,
                hop(0, *way) if there < slots else 0,
                offsets[there - arrived] if there < slots else 0,
            )
            for way, (here, there, *_) in zip(ways, moves, strict=True)
        ]

        def starts_of(sends, leaves=1, going=0, comes=1, by=0, come=0):
            goal = schedule.farther(me, by)
            read, _ = self._starts(me, schedule.farther(me, going), order)
            _, write = self._starts(schedule.farther(goal, come, -1), goal, order)
            return [n * sends * leaves for n in read] + [n * sends * comes for n in write]

        rows, keeps = super().table(device, order), self._keeps(device, order)
        last = [keeps, *[0] * (self._columns - 1), *starts_of(keeps)]
        if not is_traced(device):
            sends = [row[-2] for row in rows] if self.shares else [1] * len(rows)
            every = zip(rows, sends, ends, strict=True)
            return [(*row, *starts_of(sent, *map(int, of))) for row, sent, of in every] + [last]
        rows = jnp.array(rows, jnp.int32)
        sends = rows[:, -2] if self.shares else jnp.ones(len(moves), jnp.int32)
        found = jax.vmap(starts_of)(sends, *jnp.array(ends, jnp.int32).T)
        rows = jnp.concatenate([rows, jnp.stack(found, axis=1)], axis=1) if found else rows
        return jnp.concatenate([rows, jnp.stack([*map(jnp.int32, last)])[None]])

    def _keeps(self, device, order):
        """Return whether a device has a tile of its own target shard, as an integer: with offsets
        that not all send over not all have one, else all if any has."""
        if not self.peers.kept or not self.shares:
            return int(self.peers.kept)
        peers, (me, wanted) = self.peers, self.peers.here(order, device)
        inside = True
        if not peers.one_order:
            inside = peers.within(me, peers.source) & peers.within(wanted, peers.target)
            me, wanted = maximum(me, 0), maximum(wanted, 0)
        box = peers.tile(peers.forms.source_shard(me), peers.forms.target_shard(wanted), 0)
        found = inside & is_full(ranges(box))
        return jnp.int32(found) if is_traced(found) else int(found)

    def _starts(self, sender, receiver, order):
        """Return where a tile starts in the source shard at one place, and in the target shard at
        another, along the dimensions that are split."""
        peers, view = self.peers, self.view
        ranks = (self.schedule.device(place) for place in (sender, receiver))
        (me, _), (_, wanted) = (peers.here(order, rank) for rank in ranks)
        if not peers.one_order:
            me, wanted = maximum(me, 0), maximum(wanted, 0)
        box = peers.tile(peers.forms.source_shard(me), peers.forms.target_shard(wanted), 0)
        within = self.host.source.box(me), self.host.target.box(wanted)
        lows = (starts(box, each) for each in within)
        pairs = zip(lows, self._splits(), strict=True)
        return tuple([low[view[axis]] for axis in split] for low, split in pairs)

    def kernel(self, moves, x, y, slots, met, free, sent, received):
        """Send tiles, and send on what has come, step by step; copy the tile that the device keeps.

        moves: their numbers, in SMEM; x, y: source and target shard; slots: in HBM; met, free,
        sent: as where all is in slots; received: too, and one more, of the device's own tile.
        """
        first, whole = self._row * len(self.schedule.moves), (slice(None),) * len(self.view)
        read, write = self._shards(moves, x, y, first, whole)
        own = received.at[np.int32(len(self.steps))]
        keeps = [pltpu.make_async_copy(read, write, own)] if self.peers.kept else []
        for keep in keeps:
            self._if_any(moves[first], keep.start)
        self.pass_on(moves, (x, y, slots), met, free, sent, received)
        for keep in keeps:
            self._if_any(moves[first], keep.wait)

    def _if_any(self, count, act):
        """Act, where there is something: always, without offsets that not all send over."""
        if self.shares:
            pl.when(count > 0)(act)
        else:
            act()

    @property
    def _row(self):
        """How many numbers the table has of a move."""
        return self._columns + sum(map(len, self._splits()))

    def _shards(self, moves, x, y, first, part):
        """Return the part of the source shard, and of the target shard, that a move takes, whose
        numbers begin at `first`."""
        leaves, ends = self._splits()
        at = first + self._columns
        read = self._box(x, leaves, moves, at, part)
        return read, self._box(y, ends, moves, at + len(leaves), part)

    def _push(self, moves, shards, step, move, receiver, sent, received):
        """Return the copy of a move."""
        x, y, slots = shards
        first, (arrived, between) = self._row * move, self._ends
        part = self.slot.part(moves, first, step.chunk)
        here, there = moves[first], moves[first + 1]
        read, write = self._shards(moves, x, y, first, part)
        rows = self.schedule.moves[step.first : step.end]
        copies = []
        for leaves, ends in sorted({(a < arrived, b < between) for a, b, *_ in rows}):
            is_it = ((here < arrived) == leaves) & ((there < between) == ends)
            held = (self._slot(slots, maximum(place - between, 0), part) for place in (here, there))
            both = zip((read, write), held, (leaves, ends), strict=True)
            copies.append((is_it, *(shard if yes else slot for shard, slot, yes in both)))
        copy, last = self._sent(copies, receiver, sent, received), first + self._columns
        if not self.shares:
            return copy
        return Sometimes(*((moves[last - back] > 0, lambda: copy) for back in (2, 1)))

    @property
    def room(self):
        """How far apart slots of one dimension are: whole tiles of memory."""
        return -(-self.slot.shape[0] // FLAT_TILE) * FLAT_TILE

    @property
    def slots(self):
        """The shape of all slots."""
        count, shape = max(self.schedule.slots - self._ends[1], 1), self.slot.shape
        return (count, *shape) if len(shape) > 1 else (count * self.room,)

    def _slot(self, slots, place, part):
        """Return the part of a slot that a part of a tile takes. Slots of one dimension stand one
        after another: the slot's number would be an index along a tiled dimension."""
        if len(part) > 1:
            return slots.at[(place, *part)]
        (taken,) = part
        whole = isinstance(taken, slice)
        begin, size = (0, self.slot.shape[0]) if whole else (taken.start, taken.size)
        return slots.at[pl.ds(multiple(place * self.room, FLAT_TILE) + begin, size)]

    def moved(self, x, call):
        """Return the target shard."""
        return super().moved(x, call, self.slots)
