"""Groups whose lines go in Pallas kernels, one for all elements as wide: a device pushes each of
its lines to the receiver of its round, from and to a place that is the same on all devices.
"""

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from .jax_group import Group as ArrayGroup
from .pallas_call import Call
from .pallas_peers import LOGICAL, div
from .pallas_reach import are_near, is_v5e, refuse_far

LANES = 128


class Group(ArrayGroup):
    """As in plain JAX, but for what sends."""

    interpreted = pltpu.InterpretParams(detect_races=True)

    def exchange(self, stacks, union, called):
        """Return target shards by kind, of source shards."""
        devices, (interpret, _) = list(union.devices.flat), called
        pairs = [pair for lines in self.lines.values() for line in lines for pair in line.pairs]
        if pairs and not interpret and is_v5e(devices):
            near = are_near(devices, *np.transpose(pairs))
            refuse_far(near, "a group of jax_xla goes by XLA's own routes")
        return super().exchange(stacks, union, called)

    def sent(self, lines, packed, number, called):
        """Return the lines that arrive at a device, which sends the packed ones, in one kernel."""
        going = [n for n, line in enumerate(lines) if line.pairs]
        if not going:
            return packed
        interpret, first_id = called
        ends = np.full((len(going), len(self.ranks), 2), -1, np.int32)  # receiver, sender
        for place, n in enumerate(going):
            for sender, receiver in lines[n].pairs:
                ends[place, sender, 0], ends[place, receiver, 1] = receiver, sender
        blocks = [_blocks(packed[n]) for n in going]
        ranges, begin = [], 0
        for block in blocks:
            ranges.append((begin, len(block)))
            begin += len(block)
        mine = jnp.asarray(ends)[:, lax.axis_index("device")].reshape(-1)
        call = Call(mine, interpret, first_id + number)
        x = jnp.concatenate(blocks)
        scratch = [pltpu.SemaphoreType.DMA] * 2
        y = call.pushed(_pushing(ranges), x, x.shape, scratch)
        found = list(packed)
        for n, (begin, size) in zip(going, ranges, strict=True):
            found[n] = _line(y[begin : begin + size], packed[n])
        return found


def _pushing(ranges):
    """Return the kernel of lines at these blocks (first, number) of memory."""

    def kernel(ends, x, y, sent, received):
        """Push this device's lines. ends: of each line who gets this device's, and whose comes, -1
        for none; x, y: lines that go and that come, in HBM; sent, received: DMA semaphores."""

        def tells(number):
            sender = ends[2 * number + 1]
            return sender >= 0, sender, 0

        def push(number):
            blocks = pl.ds(*ranges[number])
            receiver = ends[2 * number]
            return receiver >= 0, pltpu.make_async_remote_copy(
                x.at[blocks],
                y.at[blocks],
                sent,
                received,
                device_id=receiver,
                device_id_type=LOGICAL,
            )

        expected = total(len(ranges), lambda number: ends[2 * number] >= 0)
        meet_all(len(ranges), tells, expected)
        for number in range(len(ranges)):
            sends, copy = push(number)
            pl.when(sends)(copy.start)
        for number in range(len(ranges)):
            sends, copy = push(number)
            pl.when(sends)(copy.wait_send)
        for number, blocks in enumerate(ranges):
            place = y.at[pl.ds(*blocks)]
            comes = ends[2 * number + 1] >= 0
            pl.when(comes)(pltpu.make_async_copy(place, place, received).wait)

    return kernel


def _blocks(line):
    """Return a line as blocks of memory, [blocks, rows, 128], of elements of at most 32 bits."""
    if line.dtype.itemsize == 8:
        low, high = (line & 0xFFFFFFFF).astype(jnp.uint32), (line >> 32).astype(jnp.int32)
        line = jnp.concatenate([lax.bitcast_convert_type(low, jnp.int32), high])
    rows = 32 // line.dtype.itemsize
    line = jnp.pad(line, (0, -line.size % (rows * LANES)))
    return line.reshape(-1, rows, LANES)


def _line(blocks, like):
    """Return the line that blocks hold, of the size and the type of another."""
    line = blocks.reshape(-1)
    if like.dtype.itemsize < 8:
        return line[: like.size]
    low, high = line[: like.size], line[like.size : 2 * like.size]
    low = lax.bitcast_convert_type(low, jnp.uint32).astype(jnp.int64)
    return (high.astype(jnp.int64) << 32) | low


def meet_all(coming, tells, expected):
    """Tell all senders that this device has entered the kernel, and hear it of all receivers, so
    many as are expected: they may be written to from then on. tells(number), below `coming`:
    whether a sender is told, its rank, and how much it sends. Return how much all send.

    A device tells again only after all data of the call before have arrived, so that a sender never
    holds two signals of one receiver.
    """
    barrier = pltpu.get_barrier_semaphore()

    def tell(number):
        told, device, amount = tells(number)

        @pl.when(told)
        def signal():
            pl.semaphore_signal(barrier, 1, device_id=device, device_id_type=LOGICAL)

        return jnp.where(told, jnp.int32(amount), 0)

    amount = total(coming, tell)
    pl.when(expected > 0)(lambda: pl.semaphore_wait(barrier, expected))
    return amount


def total(count, of):
    """Return the sum of what `of` gives for every number below a count, two of them at a time."""

    def one(number, found):
        return found + jnp.int32(of(number))

    def pair(half, found):
        return one(2 * half + 1, one(2 * half, found))

    pairs = div(count, 2)
    found = lax.fori_loop(np.int32(0), jnp.int32(pairs), pair, np.int32(0))
    return lax.fori_loop(jnp.int32(2 * pairs), jnp.int32(count), one, found)
