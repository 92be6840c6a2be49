"""The kernel of a matmul in which parts go round a ring while devices multiply.

What a part needs next is on its way into VMEM, and the part that comes next on its way from a
neighbour, while the MXU multiplies: the blocks of all parts are one sequence, which does not start
anew with a part. Every part has a place of its own where it comes, so that no device waits for
another to free one, and a semaphore: of two steps bytes must not be counted together.

A matmul is a[batch, i, j] b[batch, j, k] here. Of blocks at the ends copies bring what there is:
what is behind it in VMEM is zero along j, and makes what is not stored along i and k.
"""

import functools
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from .pallas_blocks import BATCH, DIM_I, DIM_J, DIM_K, DIMS, LANES, by_way, mask
from .pallas_peers import LOGICAL, digits_of, div, each, multiple, operand, rem

STRETCH = 1024  # of j, at most


class Block(NamedTuple):
    """One product of two blocks: its number, the step of the ring in which its part is here, the
    way on which that goes, and its place (batch, i, j, k) within the part."""

    number: Any
    step: Any
    way: Any
    place: tuple


class Memory(NamedTuple):
    """What a kernel has. In HBM both operands, the result, and `come`, places for what comes, by
    step. In VMEM blocks of the operands, `sums` of products, `made` blocks of the result, and
    `terms` that these are added to. Semaphores: of blocks that are `loaded`, of terms `added`, of
    blocks `stored`, of parts that have been `sent`, and that `came`, by way and step."""

    a: Any
    b: Any
    c: Any
    come: Any
    a_blocks: Any
    b_blocks: Any
    sums: Any
    made: Any
    terms: Any
    loaded_a: Any
    loaded_b: Any
    added: Any
    stored: Any
    sent: Any
    came: Any


class RingKernel(NamedTuple):
    """A device's part in a matmul. `rings`: its place, its neighbours, the parts in order."""

    of: Any
    rings: Any
    memory: Memory

    def run(self):
        """Multiply block after block."""
        of = self.of
        self.meet()
        if of.gathers:
            own, array = getattr(self.memory, of.travels), of.arrays[of.travels]
            each(of.ways, lambda way: self.pass_on(way, np.int32(0), own.at[array.half(way)]))
        total = of.rounds * of.tiles * of.counts[DIM_J]
        self.load(self.numbered(np.int32(0)))

        def one(number):
            pl.when(number + 1 < total)(lambda: self.load(self.numbered(number + 1)))
            self.multiply(self.numbered(number))

        each(total, one)
        stores = of.tiles * (1 if of.keeps_sums else of.rounds)
        for last in range(min(stores, 2)):
            self.stored(self.numbered(np.int32(total - 1 - last * of.counts[DIM_J]))).wait()
        if of.gathers:
            for way in map(np.int32, range(of.ways)):
                each(of.size - 1, lambda _, way=way: self.gone(way).wait())

    def meet(self):
        """Tell the devices that send to this one that it is in the kernel, and hear it of those
        that it sends to."""
        barrier = pltpu.get_barrier_semaphore()
        for way in range(self.of.ways):
            self.signal(barrier, self.rings[0, 2 - way])
        pl.semaphore_wait(barrier, self.of.ways)

    def signal(self, semaphore, device):
        pl.semaphore_signal(semaphore, 1, device_id=device, device_id_type=LOGICAL)

    def numbered(self, number):
        """Return the block of a number: along j first, then along k, i and the batch, then those of
        the other way, then those of the next step. Where parts of the result travel the ways take
        turns, sums by sums, so that one link is not idle while the other sends."""
        of, order = self.of, (BATCH, DIM_I, DIM_K, DIM_J)
        sizes = [of.size, *(of.counts[f] for f in order)]
        number_of_way = 1 if of.gathers else 4
        sizes.insert(number_of_way, of.ways)
        digits = [operand(digit) for digit in digits_of(number, sizes)]
        way = digits.pop(number_of_way)
        step, batch, i, k, j = digits
        return Block(number, step, way, (batch, i, j, k))

    def part(self, block):
        """Return the part that is multiplied, or that a term is added to: upwards what a device
        before this one had first, or what is that one's after all other devices."""
        shift, size = block.step + (0 if self.of.gathers else 1), self.of.size
        place = self.rings[0, 0]
        by = size - shift
        if self.of.ways == 2:
            by = jnp.where(block.way == 0, by, shift)
        return self.rings[0, 3 + rem(place + by, size)]

    def window(self, side, block, array=None):
        """Return where a block is in an array, of its side's if of no other, and how much of it
        there is, by dimension of a matrix."""
        of, starts, sizes = self.of, [], []
        array = array or of.arrays[side]
        for f in DIMS[side]:
            part = self.part(block) if f == of.factor and array.parts > 1 else 0
            size = of.blocks[f]
            starts.append(array.start(f, part, block.way) + block.place[f] * size)
            sizes.append(array.size(f, block.way, block.place[f], size))
        tiles = (array.tiles[f] for f in DIMS[side])
        found = [
            pl.ds(multiple(*each), size)
            for *each, size in list(zip(starts, tiles, sizes, strict=True))[1:]
        ]
        return (starts[0], *found), sizes[1:]

    def pass_on(self, way, step, half):
        """Send the half of a part that is here in a step to the next device on its way."""
        pltpu.make_async_remote_copy(
            half,
            self.memory.come.at[(step, *self.of.come.half(way))],
            self.memory.sent.at[way],
            self.memory.came.at[way, step],
            device_id=self.neighbour(way),
            device_id_type=LOGICAL,
        ).start()

    def neighbour(self, way):
        """Return the device that parts go to on a way."""
        return jnp.where(way == 0, self.rings[0, 1], self.rings[0, 2])

    def gone(self, way):
        """Return a copy to wait for until half a part has left."""
        half = self.memory.come.at[(np.int32(0), *self.of.come.half(way))]
        return pltpu.make_async_copy(half, half, self.memory.sent.at[way])

    def load(self, block):
        """Bring what a block takes into VMEM, once it is here."""
        if self.of.gathers:
            self.arrive(block)
        for side in "ab":
            self.loaded(side, block, lambda copy: copy.start())

    def arrive(self, block):
        """Before the first block of a part that comes wait for it, and pass it on if it has farther
        to go."""
        memory, step, way = self.memory, block.step, block.way
        first = functools.reduce(lambda a, b: a + b, block.place) == 0

        @pl.when(first & (step > 0))
        def wait():
            come = memory.come.at[(step - 1, *self.of.come.half(way))]
            pltpu.make_async_copy(come, come, memory.came.at[way, step - 1]).wait()
            if self.of.gathers:
                pl.when(step < self.of.size - 1)(lambda: self.pass_on(way, step, come))

    def slot(self, side, block):
        """Return the place of an operand's block in VMEM."""
        if not self.of.stays(side):
            return rem(block.number, 2)
        number = np.int32(0)
        for f in DIMS[side]:
            number = number * self.of.counts[f] + block.place[f]
        return number

    def loaded(self, side, block, visit):
        """Call visit(copy) for the copy that brings an operand's block, unless it is there."""
        of, memory = self.of, self.memory
        ref, places, semaphores = (
            (memory.a, memory.a_blocks, memory.loaded_a)
            if side == "a"
            else (memory.b, memory.b_blocks, memory.loaded_b)
        )
        slot = self.slot(side, block)
        window, sizes = self.window(side, block)

        def copy(source):
            into = cut(places, slot, sizes)
            visit(pltpu.make_async_copy(source, into, semaphores.at[slot]))

        if side == of.travels:
            come, _ = self.window(side, block, of.come)
            pl.when(block.step == 0)(lambda: copy(ref.at[window]))
            pl.when(block.step > 0)(lambda: copy(memory.come.at[(block.step - 1, *come)]))
        elif of.stays(side):
            other = block.place[DIM_I if side == "b" else DIM_K]
            pl.when((block.step == 0) & (block.way == 0) & (other == 0))(
                lambda: copy(ref.at[window])
            )
        else:
            copy(ref.at[window])

    def take(self, side, block):
        """Wait until an operand's block is in VMEM, and let it be zero behind the end of j."""
        of, axis = self.of, DIMS[side].index(DIM_J) - 1
        places = self.memory.a_blocks if side == "a" else self.memory.b_blocks

        def waited(copy):
            copy.wait()
            if of.ends:
                is_last = block.place[DIM_J] == of.counts[DIM_J] - 1
                whole, end = places.at[self.slot(side, block)], by_way(block.way, of.ends)
                pl.when(is_last)(lambda: mask(whole, axis, end, min(of.ends) // LANES))

        self.loaded(side, block, waited)

    def later(self, block):
        """Return whether a block of sums is added to terms."""
        return (block.step > 0) | (self.of.gathers & (block.way > 0))

    def added(self, block, wanted, visit):
        """Call visit(copy) for the copy that brings the terms that a block of sums is added to,
        where there are any, and they are wanted."""
        of, memory = self.of, self.memory
        if not of.adds:
            return
        slot = rem(div(block.number, of.counts[DIM_J]), 2)
        window, sizes = self.window("c", block, None if of.gathers else of.come)

        def copy():
            source = (
                memory.c.at[window] if of.gathers else memory.come.at[(block.step - 1, *window)]
            )
            terms = cut(memory.terms, slot, sizes)
            visit(pltpu.make_async_copy(source, terms, memory.added.at[slot]))

        pl.when(wanted & self.later(block))(copy)

    def multiply(self, block):
        """Add the product of two blocks to their sums, of which the last one is stored."""
        of, memory, j = self.of, self.memory, block.place[DIM_J]
        for side in "ab":
            self.take(side, block)
        number = self.number(block)
        begins, ends = j == 0, j == of.counts[DIM_J] - 1
        if of.keeps_sums:
            begins = begins & (block.step == 0) & (block.way == 0)
            ends = ends & (block.step == of.size - 1) & (block.way == of.ways - 1)
        total = memory.sums.at[number if of.keeps_sums else np.int32(0)]
        if not of.is_whole:
            pl.when(begins)(lambda: clear(total))
        if not of.gathers:  # not before the blocks that others wait for have been sent
            self.arrive(block)
        self.added(block, j == 0, lambda copy: copy.start())
        operands = (
            places.at[self.slot(side, block)]
            for side, places in (("a", memory.a_blocks), ("b", memory.b_blocks))
        )
        (put_product if of.is_whole else add_product)(total, *operands)
        pl.when(ends)(lambda: self.finish(block, total))

    def number(self, block):
        """Return the number of a block of sums: as they are made, or in VMEM where all are kept."""
        number = div(block.number, self.of.counts[DIM_J])
        return operand(rem(number, self.of.tiles)) if self.of.keeps_sums else number

    def finish(self, block, total):
        """Store sums, or send them on as terms of the next device."""
        of, memory, number = self.of, self.memory, self.number(block)
        slot, before = rem(number, 2), block.number - 2 * of.counts[DIM_J]
        made = memory.made.at[slot]
        pl.when(number >= 2)(lambda: self.stored(self.numbered(before)).wait())
        if of.adds:
            self.added(block, True, lambda copy: copy.wait())
            terms, later = memory.terms.at[slot], self.later(block)
            pl.when(later)(lambda: put_sum(made, total, terms))
            pl.when(later ^ True)(lambda: put_sum(made, total))
        else:
            put_sum(made, total)
        is_kept = True if of.gathers else block.step == of.size - 1
        window, sizes = self.window("c", block)
        made = cut(memory.made, slot, sizes)

        @pl.when(is_kept)
        def keep():
            pltpu.make_async_copy(made, memory.c.at[window], memory.stored.at[slot]).start()

        @pl.when(is_kept ^ True)
        def send():
            come, _ = self.window("c", block, of.come)
            pltpu.make_async_remote_copy(
                made,
                memory.come.at[(block.step, *come)],
                memory.stored.at[slot],
                memory.came.at[block.way, block.step],
                device_id=self.neighbour(block.way),
                device_id_type=LOGICAL,
            ).start()

    def stored(self, block):
        """Return a copy to wait for until a block of the result has left its place."""
        slot, (_, sizes) = rem(self.number(block), 2), self.window("c", block)
        made = cut(self.memory.made, slot, sizes)
        return pltpu.make_async_copy(made, made, self.memory.stored.at[slot])


def cut(places, slot, sizes):
    """Return what there is of a block in a slot."""
    return places.at[(slot, *(pl.ds(0, size) for size in sizes))]


def clear(total):
    """Let a block of sums be zero."""
    total[...] = jnp.zeros(total.shape, total.dtype)


def put_product(total, a, b):
    """Write the product of two blocks as sums, where it is all that they are of."""
    total[...] = jnp.dot(a[...], b[...], preferred_element_type=total.dtype)


def add_product(total, a, b):
    """Add the product of two blocks to a block of sums, so much of them at a time that the code is
    short and the MXU hardly waits for the next."""
    size = stretch_of(a.shape[-1])

    def one(number):
        along = pl.ds(multiple(number * size, size), size)
        total[...] += jnp.dot(a[:, along], b[along, :], preferred_element_type=total.dtype)

    each(a.shape[-1] // size, one)


def put_sum(into, total, *terms):
    """Write sums, and terms that they are added to, as elements of the result."""
    value = total[...]
    for term in terms:
        value = value + term[...].astype(value.dtype)
    into[...] = value.astype(into.dtype)


def stretch_of(size):
    """Return how much of a block is multiplied at a time along j: the most that divides it."""
    return max(one for one in range(LANES, min(size, STRETCH) + 1, LANES) if size % one == 0)
