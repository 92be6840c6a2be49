"""Terms that are reduced on their way round rings: a Pallas kernel passes partial results from
device to device, and every device adds what it holds of them.

A ring is along a digit of the device's position; several follow one another, each within what the
one before has left. Both directions are used at once, each for a half of every part.
"""

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from .boxes import spread
from .jax_program import Program
from .pallas_peers import LOGICAL, div, each, is_traced, rem
from .pallas_program import Call, PallasProgram

LANES = 128
COMBINED = {"sum": jnp.add, "max": jnp.maximum, "min": jnp.minimum}


class Round(NamedTuple):
    """A ring along the digit of a stride and a size. `folded`: whether it goes up over the even
    coordinates and down over the odd ones, along an axis whose ends have no link."""

    stride: int
    size: int
    folded: bool = False

    def coordinate(self, place):
        """Return the coordinate of a place of the ring."""
        if not self.folded:
            return place
        return either(2 * place < self.size, 2 * place, 2 * (self.size - place) - 1)

    def place(self, position):
        """Return the place of the device at a position."""
        own = rem(div(position, self.stride), self.size)
        if not self.folded:
            return own
        return either(rem(own, 2) == 0, div(own, 2), self.size - div(own + 1, 2))

    def neighbours(self, position):
        """Return the positions after and before a position, which the ring goes to upwards and
        downwards."""
        place, own = self.place(position), rem(div(position, self.stride), self.size)
        others = (self.coordinate(rem(place + by, self.size)) for by in (1, self.size - 1))
        return [position + (other - own) * self.stride for other in others]


def either(condition, one, other):
    """Return one of two integers."""
    if is_traced(condition):
        return jnp.where(condition, one, other)
    return one if condition else other


class Memory(NamedTuple):
    """What a kernel has in VMEM, two of each for each direction, of which steps take turns: `slots`
    that others write, `sums` that leave, `terms` of this device; and DMA semaphores of what has
    come, left and been read, and counters of how often a neighbour's slots are free, by ring."""

    slots: Any
    sums: Any
    terms: Any
    received: Any
    left: Any
    loaded: Any
    free: Any


class Ring(PallasProgram):
    """Reduces the terms of the parts of a shard, each on the device that keeps it. `rounds`: the
    rings, one after another; `terms`: what is reduced; `rows`, `chunks`: half a part is so many
    chunks of so many rows of memory."""

    form = "ring"
    moves: Any = None  # partial results, which are no tiles of the tensor

    def __init__(self, axes, rounds, terms, rows, chunks, collective_id, powers_of_two=False):
        self.axes, self.rounds, self.terms = axes, rounds, terms
        self.rows, self.chunks, self.collective_id = rows, chunks, collective_id
        self._powers_of_two = powers_of_two
        self.parts = math.prod(turn.size for turn in rounds)

    def as_bits(self, interpret):
        """Return whether elements are given as integers of their width: they need not be."""
        return False

    def attach(self, host):
        """Get to know what is reduced."""
        Program.attach(self, host)
        self.rank = len(host.shape)
        self.given, self.part = host.source.local[-self.rank :], host.target.local[-self.rank :]

    @property
    def half(self):
        """How many elements of a part go upwards; the others go downwards."""
        return self.chunks * self.rows * LANES

    @property
    def held(self):
        """How many chunks of a direction a device has after each ring."""
        sizes = [turn.size for turn in self.rounds]
        return [self.chunks * math.prod(sizes[number + 1 :]) for number in range(len(sizes))]

    def starts(self):
        """Return where, in a source shard, the parts are that rings bring together, by their places
        in the rings."""
        found = []
        for places in np.ndindex(*(turn.size for turn in self.rounds)):
            pairs = zip(self.rounds, places, strict=True)
            position = sum(int(turn.coordinate(place)) * turn.stride for turn, place in pairs)
            ends = (side.box(position) for side in (self.host.source, self.host.target))
            before, after = (box[-2 * self.rank :: 2] for box in ends)
            found.append([low - start for low, start in zip(after, before, strict=True)])
        return found

    def pairs(self):
        """Return the ranks of senders and of receivers, as arrays."""
        senders = range(len(self.host.source.ids))
        ends = [
            (sender, int(receiver))
            for sender in senders
            for turn in self.rounds
            for receiver in turn.neighbours(sender)
        ]
        return np.array(ends, int).T

    def fault(self):
        """Return where a device keeps another part than rings bring it, or what is left of a shard
        by all parts; "" if nothing is wrong."""
        starts, sides = self.starts(), (self.host.source, self.host.target)
        if len({*map(tuple, starts)}) * math.prod(self.part) != math.prod(self.given):
            return f"parts at {starts} do not make up a shard"
        for position in spread(len(sides[0].ids)):
            number = 0
            for turn in self.rounds:
                number = number * turn.size + turn.place(position)
            before, after = (side.box(position)[-2 * self.rank :: 2] for side in sides)
            if [low - start for low, start in zip(after, before, strict=True)] != starts[number]:
                return f"device {sides[0].ids[position]} keeps another part than rings bring it"
        return ""

    def exchange(self, shard, order, interpret, collective_id):
        """Return the part of this device, reduced."""
        del order
        dtype = self.host.dtype
        values = lax.bitcast_convert_type(shard, dtype) if self.floating else shard
        wide = jnp.float32 if self.floating else jnp.int32
        call = Call(None, interpret, collective_id)
        x = self._packed(values.reshape(self.given).astype(wide))
        y = self._ran(call, x)[:, -self.chunks :].reshape(-1)[: math.prod(self.part)]
        y = y.astype(dtype).reshape(self.host.target.local)
        return lax.bitcast_convert_type(y, shard.dtype) if self.floating else y

    def _packed(self, x):
        """Return the parts of a shard [direction, chunks of all parts, rows, lanes]."""
        starts = jnp.array(self.starts(), jnp.int32)
        parts = lax.map(lambda start: lax.dynamic_slice(x, start, self.part), starts)
        flat = parts.reshape(self.parts, -1)
        flat = jnp.pad(flat, [(0, 0), (0, 2 * self.half - flat.shape[1])])
        halves = flat.reshape(self.parts, 2, self.chunks, self.rows, LANES)
        return jnp.moveaxis(halves, 1, 0).reshape(2, -1, self.rows, LANES)

    def _ran(self, call, x):
        dma, two = pltpu.SemaphoreType.DMA((2, 2)), (2, 2, self.rows, LANES)
        free = pltpu.SemaphoreType.REGULAR((len(self.rounds), 2))
        return call.pushed(
            self.kernel,
            x,
            (2, sum(self.held), self.rows, LANES),
            [*[pltpu.VMEM(two, x.dtype)] * 3, dma, dma, dma, free],
        )

    def kernel(self, x, y, slots, sums, terms, received, left, loaded, free):
        """Reduce the terms of x, all parts in chunks, ring after ring; y has what each leaves.

        See `Memory` for the others. A device writes into a slot of a neighbour only when that has
        said that it is free, once for each time.
        """
        me = lax.axis_index(self.axes)
        barrier = pltpu.get_barrier_semaphore()
        for turn in self.rounds:
            for peer in turn.neighbours(me):
                pl.semaphore_signal(barrier, 1, device_id=peer, device_id_type=LOGICAL)
        pl.semaphore_wait(barrier, 2 * len(self.rounds))
        memory = Memory(slots, sums, terms, received, left, loaded, free)
        begin, read, low = 0, x, 0
        for number, count in enumerate(self.held):
            turn = Turn(self.rounds[number], np.int32(number), self.terms.operator, me, memory)
            turn.run(
                lambda at, read=read, low=low: read.at[at[0], low + at[1]],
                lambda at, begin=begin: y.at[at[0], begin + at[1]],
                count,
            )
            read, low, begin = y, begin, begin + count


class Turn(NamedTuple):
    """A kernel's part in one ring. `number`: that of the ring; `me`: the position of the device."""

    round: Round
    number: object
    operator: str
    me: object
    memory: Memory

    def run(self, block, result, count):
        """Reduce `count` chunks. block(direction, chunk): a chunk of what this device has before,
        all parts of one place of the ring after those of another; result: of what it has after."""
        size, steps = self.round.size, count * self.round.size
        peers, sends = self.round.neighbours(self.me), count * (size - 1)
        for way in range(2):
            # What it gets in one direction comes from where it sends in the other.
            self._freed(way, peers[1 - way], min(2, sends))
            self._load(way, np.int32(0), block, count).start()

        def one(step):
            for way in range(2):
                self._step(way, step, (block, result), peers, count)

        each(steps, one)
        for way in range(2):
            for turn in range(2):
                self._gone(np.int32(way), np.int32(turn)).wait()

    def _step(self, way, step, places, peers, count):
        """Take a block and what has come of it so far together, and pass that on; of the last block
        of a chunk, which is this device's own, keep it."""
        (block, result), size, memory = places, self.round.size, self.memory
        steps, sends, d = count * size, count * (size - 1), np.int32(way)
        turn, at = rem(step, 2), rem(step, size)
        sent = div(step, size) * (size - 1) + at  # the number of what it sends, if it does
        slot = rem(sent + 1, 2)  # where what it sends for, the one before, has come
        self._load(way, step, block, count).wait()
        pl.when(step + 1 < steps)(lambda: self._load(way, step + 1, block, count).start())
        pl.when(step >= 2)(lambda: self._gone(d, turn).wait())
        total, own = memory.sums.at[d, turn], memory.terms.at[d, turn]
        come = memory.slots.at[d, slot]
        pl.when(at == 0)(lambda: put(total, self.operator, own))

        @pl.when(at > 0)
        def add():
            pltpu.make_async_copy(come, come, memory.received.at[d, slot]).wait()
            put(total, self.operator, come, own)
            pl.when(sent + 1 < sends)(lambda: self._freed(way, peers[1 - way], 1))

        @pl.when(at < size - 1)
        def send():
            pl.semaphore_wait(memory.free.at[self.number, d], 1)
            there, to = memory.slots.at[d, rem(sent, 2)], peers[way]
            came = memory.received.at[d, rem(sent, 2)]
            pltpu.make_async_remote_copy(
                total, there, memory.left.at[d, turn], came, device_id=to, device_id_type=LOGICAL
            ).start()

        @pl.when(at == size - 1)
        def keep():
            kept = result((d, div(step, size)))
            pltpu.make_async_copy(total, kept, memory.left.at[d, turn]).start()

    def _load(self, way, step, block, count):
        """Return the copy of the block of a step. Upwards a device begins with that of the place
        before its own, which has farthest to go."""
        size, place = self.round.size, self.round.place(self.me)
        at, turn, d = rem(step, size), rem(step, 2), np.int32(way)
        of = rem(place + (2 * size - 1 - at if way == 0 else 1 + at), size)
        chunk = block((d, of * count + div(step, size)))
        own, loaded = self.memory.terms.at[d, turn], self.memory.loaded.at[d, turn]
        return pltpu.make_async_copy(chunk, own, loaded)

    def _gone(self, d, turn):
        """Return a copy to wait for until what was taken together has left its place."""
        total = self.memory.sums.at[d, turn]
        return pltpu.make_async_copy(total, total, self.memory.left.at[d, turn])

    def _freed(self, way, peer, count):
        """Tell a neighbour that so many slots more are free."""
        free = self.memory.free.at[self.number, np.int32(way)]
        pl.semaphore_signal(free, count, device_id=peer, device_id_type=LOGICAL)


def put(into, operator, *values):
    """Write what an operator makes of values in VMEM, in their order, to a place there."""
    total = values[0][...]
    for value in values[1:]:
        total = COMBINED[operator](total, value[...])
    into[...] = total
