"""The gathered form: source shards go from target shard to target shard.

Devices that send to each other have one target shard, which consists of whole source shards. So
what a device sends on is part of what it wants itself, and stands in the same place on both.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from .pallas_peers import LOGICAL, is_traced, multiple
from .pallas_routed import Spread
from .pallas_slots import starts


class Either(NamedTuple):
    """A copy out of the source shard, if `first` says so, or of as much out of the target shard."""

    first: Any
    own: Any
    passed: Any

    def start(self):
        """Start it."""
        pl.when(self.first)(self.own.start)
        pl.when(self.first ^ True)(self.passed.start)

    def wait_send(self):
        """Wait until it has left."""
        self.passed.wait_send()

    def wait_recv(self):
        """Wait until it has come."""
        self.passed.wait_recv()


class Gathered(Spread):
    """Slots are boxes of the target shard, one for each source shard in it: that of the device
    which is as much farther back as what comes to the slot has come. `slot`: the shape of such a
    box; slot 0 is that of the device's own."""

    form = "gathered"
    packed = False

    def __init__(self, peers, schedule, slot, view, **settings):
        super().__init__(peers, schedule, slot, slot.held, view=view, **settings)

    def table(self, device, order=None):
        """Return what the kernel is told of moves: the schedule's rows, and then where in the
        target shard what each moves starts, along dimensions that are split."""
        _, come = self._carried()
        source, target = self.host.source, self.host.target
        within = target.box(self.peers.here(order, device)[1])

        def place(offset):
            origin, _ = self.peers.here(order, self.schedule.farther(device, offset, -1))
            low = starts(source.box(origin), within)
            return [low[self.view[axis]] for axis in self._split]

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
        first = 0  # a move of the own shard: nothing else is there at first
        own = (slice(None),) * len(self.view)
        kept = received.at[np.int32(len(self.steps))]
        keep = pltpu.make_async_copy(x, y.at[self._within(moves, first, own)], kept)
        keep.start()
        self.pass_on(moves, (x, y), met, free, sent, received)
        keep.wait()

    def _within(self, moves, first, part):
        """Return the part of the target shard that a part of a slot is, of the move whose numbers
        begin at `first`."""
        found = list(part)
        for column, axis in enumerate(self._split, self._columns):
            extent, taken = self.slot.shape[axis], part[axis]
            start, begin, size = multiple(moves[first + column], extent), 0, extent
            if not isinstance(taken, slice):
                begin, size = taken.start, taken.size
            found[axis] = pl.ds(start + begin, size)
        return tuple(found)

    @property
    def _columns(self):
        """How many numbers of a move come before where it starts."""
        return len(self.schedule.moves[0])

    @property
    def _split(self):
        """The dimensions, of kernels, along which a target shard has several source shards."""
        pairs = enumerate(zip(self.slot.shape, self.target_shape, strict=True))
        return [axis for axis, (own, whole) in pairs if own != whole]

    def _push(self, moves, shards, step, move, receiver, sent, received):
        """Return the copy of a move."""
        x, y = shards
        first = (self._columns + len(self._split)) * move
        part = self.slot.part(moves, first, step.chunk)
        there = y.at[self._within(moves, first, part)]
        own, passed = (
            pltpu.make_async_remote_copy(
                read, there, sent, received, device_id=receiver, device_id_type=LOGICAL
            )
            for read in (x.at[part], there)
        )
        taken = {here == 0 for here, *_ in self.schedule.moves[step.first : step.end]}
        if len(taken) > 1:
            return Either(moves[first] == 0, own, passed)
        return own if taken == {True} else passed

    def moved(self, x, call):
        """Return the target shard."""
        device, kinds = lax.axis_index(self.peers.axes), pltpu.SemaphoreType
        count = len(self.steps)
        table = jnp.array(self.table(device, call.order), jnp.int32)
        y = call._replace(order=table.reshape(-1)).pushed(
            self.kernel,
            lax.transpose(x, self.view),
            self.target_shape,
            [kinds.REGULAR, kinds.REGULAR((count,)), kinds.DMA((count,)), kinds.DMA((count + 1,))],
        )
        return lax.transpose(y, self.inverse)
