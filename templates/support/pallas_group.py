"""Groups whose lines Pallas kernels send, one kernel per element width. In each round, a device
writes its line to the round's receiver. A line has the same offset on all devices."""

import functools

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.pallas import tpu as pltpu

from .jax_group import Group as ArrayGroup
from .pallas_call import Call
from .pallas_reach import are_near, is_v5e, refuse_far

LANES = 128


class Group(ArrayGroup):
    """A group like that of plain JAX, whose lines are sent by kernels."""

    def exchange(self, stacks, union, called):
        """Return target shards by kind, given source shards. Raises ValueError if a v5e cannot send
        a line directly to its receiver."""
        devices, (interpret, _) = list(union.devices.flat), called
        pairs = [pair for lines in self.lines.values() for line in lines for pair in line.pairs]
        if pairs and not interpret and is_v5e(devices):
            near = are_near(devices, *np.transpose(pairs))
            refuse_far(near, "use a group of jax_xla, which XLA routes itself")
        return super().exchange(stacks, union, called)

    def sent(self, lines, packed, number, called):
        """Return the lines that a device receives while sending the packed lines, in one kernel."""
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
        kernel = functools.partial(self.kernel, ranges=tuple(ranges))
        y = call.pushed(kernel, x, x.shape, scratch)
        found = list(packed)
        for n, (begin, size) in zip(going, ranges, strict=True):
            found[n] = _line(y[begin : begin + size], packed[n])
        return found


def _blocks(line):
    """Return a line as memory blocks, [blocks, rows, 128], of elements of at most 32 bits."""
    if line.dtype.itemsize == 8:
        low, high = (line & 0xFFFFFFFF).astype(jnp.uint32), (line >> 32).astype(jnp.int32)
        line = jnp.concatenate([lax.bitcast_convert_type(low, jnp.int32), high])
    rows = 32 // line.dtype.itemsize
    line = jnp.pad(line, (0, -line.size % (rows * LANES)))
    return line.reshape(-1, rows, LANES)


def _line(blocks, like):
    """Return the line in `blocks`, with the size and type of `like`."""
    line = blocks.reshape(-1)
    if like.dtype.itemsize < 8:
        return line[: like.size]
    low, high = line[: like.size], line[like.size : 2 * like.size]
    low = lax.bitcast_convert_type(low, jnp.uint32).astype(jnp.int64)
    return (high.astype(jnp.int64) << 32) | low
