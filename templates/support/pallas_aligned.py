"""Forms that forward parts of shards without packing or assembling them.

Gathered: devices that communicate share one target shard, made of whole source shards. So a device
forwards parts of its own target shard, to the same place on the next device.

Relayed: tiles, all of one shape, leave from their place in source shards and arrive at their place
in target shards. On the way they are in slots.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.pallas import tpu as pltpu

from .boxes import ranges
from .pallas_integers import is_full, maximum, starts
from .pallas_peers import is_traced
from .pallas_routed import Forwarding
from .pallas_steps import hop

FLAT_TILE = 4096
"""Number of elements in a memory tile of a one-dimensional array of bytes, a multiple of the number
for wider elements."""


class Aligned(Forwarding):
    """The common part of both forms. `slot`: a `Slot` with the shape of a moved box."""

    def __init__(self, kernel, peers, schedule, slot, view, **settings):
        super().__init__(kernel, peers, schedule, slot, view=view, **settings)

    @property
    def _columns(self):
        """Return the number of columns before the start of a move in the table."""
        return len(self.schedule.moves[0]) + self.shares

    def _split(self, local):
        """Return the dimensions, in kernel order, along which a shard has several boxes."""
        pairs = enumerate(zip(self.slot.shape, local, strict=True))
        return [axis for axis, (own, whole) in pairs if own != whole]

    def moved(self, x, call, *beside):
        """Return the target shard; `beside`: the shapes of the kernel's scratch arrays in HBM."""
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
    """Places are boxes of the target shard, one for each source shard in it. Place 0 is for the
    device's own shard. Every other place is for a shard that arrives from a fixed distance."""

    form = "gathered"
    spreads = True

    def table(self, device, order=None):
        """Return the kernel's table of moves: the schedule's rows, each with the move's start in
        the target shard along split dimensions."""
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


class Relayed(Aligned):
    """With m offsets, place n < m is the tile of the source shard that leaves over offset n, and
    place m + n is the tile of the target shard that arrives over offset n. Places from 2 * m on are
    slots for tiles in flight."""

    form = "relayed"

    @property
    def _ends(self):
        """Return the index of the first place in the target shard, and of the first slot."""
        count = len(self.schedule.offsets)
        return count, 2 * count

    def _splits(self):
        """Return the dimensions along which source shards are split, and the same for target
        shards."""
        local = self.host.source.local or (1,)
        return self._split([local[axis] for axis in self.view]), self._split(self.target_shape)

    def table(self, device, order=None):
        """Return the kernel's table of moves: the columns of all forwarding forms, then each move's
        start in the source shard and in the target shard, 0 for a slot. The last row has whether
        the device keeps a tile, and the tile's starts."""
        schedule, (arrived, slots) = self.schedule, self._ends
        me, offsets, moves = schedule.place(device), schedule.offsets, schedule.moves
        ways = [way for _, way in schedule.ways]
        # For each move: whether it reads the source shard, and over which offset the tile leaves;
        # whether it writes the target shard, the hop, and over which offset the tile arrives.
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
        """Return 1 if a device holds a tile of its own target shard, else 0. Without `shares`,
        all devices hold one if any device does."""
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
        """Return a tile's start in the sender's source shard and in the receiver's target shard,
        along split dimensions; `sender`, `receiver`: places in the schedule."""
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

    @property
    def room(self):
        """Return the distance, in elements, between slots of one dimension: a whole number of
        memory tiles."""
        return -(-self.slot.shape[0] // FLAT_TILE) * FLAT_TILE

    @property
    def slots(self):
        """Return the shape of the array of all slots."""
        count, shape = max(self.schedule.slots - self._ends[1], 1), self.slot.shape
        return (count, *shape) if len(shape) > 1 else (count * self.room,)

    def moved(self, x, call):
        """Return the target shard."""
        return super().moved(x, call, self.slots)
