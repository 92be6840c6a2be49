"""The forms that forward parts of shards, as they are: nothing is packed, nothing put together.

Gathered: devices that send to each other have one target shard, of whole source shards. So what a
device sends on is part of what it wants itself, and stands in the same place on both.

Relayed: tiles, all of one shape, leave source shards where they stand, and end where they belong in
target shards; in between they are in slots.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from .pallas_peers import LOGICAL, is_traced, maximum, multiple
from .pallas_routed import Forwarding
from .pallas_slots import starts
from .pallas_steps import hop


class OneOf(NamedTuple):
    """A copy that is one of several, of as many elements each. `copies`: of each whether it is the
    one, and itself."""

    copies: tuple[tuple[Any, Any], ...]

    def start(self):
        """Start it."""
        for is_it, copy in self.copies:
            pl.when(is_it)(copy.start)

    def wait_send(self):
        """Wait until it has left."""
        self.copies[0][1].wait_send()

    def wait_recv(self):
        """Wait until it has come."""
        self.copies[0][1].wait_recv()


class Aligned(Forwarding):
    """What both forms have in common. `slot`: the shape of what goes, a box of a shard."""

    packed = False
    kernel: Any

    def __init__(self, peers, schedule, slot, view, **settings):
        super().__init__(peers, schedule, slot, slot.held, view=view, **settings)

    @property
    def _columns(self):
        """How many numbers of a move come before where it starts."""
        return len(self.schedule.moves[0])

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
        made = [
            (
                is_it,
                pltpu.make_async_remote_copy(
                    read, write, sent, received, device_id=receiver, device_id_type=LOGICAL
                ),
            )
            for is_it, read, write in copies
        ]
        return OneOf(tuple(made)) if len(made) > 1 else made[0][1]

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

    @property
    def keeps(self):
        """Whether a device has a tile of its own target shard."""
        boxes = math.prod(self.target_shape) // math.prod(self.slot.shape)
        return boxes > len(self.schedule.offsets)

    def _splits(self):
        """Return the dimensions along which source shards are split, and target shards."""
        local = self.host.source.local or (1,)
        return self._split([local[axis] for axis in self.view]), self._split(self.target_shape)

    def table(self, device, order=None):
        """Return what the kernel is told of moves: the schedule's rows, and then where in the
        source shard, and in that target shard, what each moves starts, if there; in the end where
        the tile does that the device keeps."""
        arrived, slots = self._ends
        offsets, moves = self.schedule.offsets, self.schedule.moves
        hops = [hop(0, *way) for hops in self.schedule.rounds for *way, n in hops for _ in range(n)]
        leaves = [here < arrived for here, *_ in moves]
        ends = [there < slots for _, there, *_ in moves]
        # What is in a slot before a move, or after it, starts nowhere: any tile will do.
        gone = [offsets[here * yes] for (here, *_), yes in zip(moves, leaves, strict=True)]
        come = [
            (at, offsets[there - arrived]) if yes else (offsets[0], offsets[0])
            for at, (_, there, *_), yes in zip(hops, moves, ends, strict=True)
        ]
        more = [(0,) * self._columns] * self.keeps
        leaves, ends, gone, come = (
            [*found, *[last] * self.keeps]
            for found, last in ((leaves, True), (ends, True), (gone, 0), (come, (0, 0)))
        )

        def low(offset, before):
            receiver = self.schedule.farther(device, offset)
            return self._starts(self.schedule.farther(receiver, before, -1), receiver, order)

        def read(offset):
            return low(offset, offset)[0]

        def written(offset, before):
            return low(offset, before)[1]

        rows = [*moves, *more]
        if not is_traced(device):
            return [
                (*row, *(n * a for n in read(k)), *(n * b for n in written(*ks)))
                for row, a, b, k, ks in zip(rows, leaves, ends, gone, come, strict=True)
            ]
        known = [jnp.array(rows, jnp.int32)]
        for given, of, told in (([gone], read, leaves), (zip(*come, strict=True), written, ends)):
            found = jax.vmap(of)(*(jnp.array(each, jnp.int32) for each in given))
            known += [each[:, None] * jnp.array(told, jnp.int32)[:, None] for each in found]
        return jnp.concatenate(known, axis=1)

    def _starts(self, sender, receiver, order):
        """Return where a tile starts in the source shard of one rank, and in the target shard of
        another, along the dimensions that are split."""
        peers, view = self.peers, self.view
        me, wanted = peers.here(order, sender)[0], peers.here(order, receiver)[1]
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
        if self.keeps:
            own, whole = len(self.schedule.moves), (slice(None),) * len(self.view)
            read, write = self._shards(moves, x, y, self._row * own, whole)
            kept = received.at[np.int32(len(self.steps))]
            keep = pltpu.make_async_copy(read, write, kept)
            keep.start()
        self.pass_on(moves, (x, y, slots), met, free, sent, received)
        if self.keeps:
            keep.wait()

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
            held = (slots.at[(maximum(place - between, 0), *part)] for place in (here, there))
            both = zip((read, write), held, (leaves, ends), strict=True)
            copies.append((is_it, *(shard if yes else slot for shard, slot, yes in both)))
        return self._sent(copies, receiver, sent, received)

    def moved(self, x, call):
        """Return the target shard."""
        count = self.schedule.slots - self._ends[1]
        return super().moved(x, call, (max(count, 1), *self.slot.shape))
