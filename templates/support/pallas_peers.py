"""What kernels compute and do, by names that a reader of Pallas knows: integers, loops, signals,
copies and waits. Functions of integers take traced values too.
"""

import functools
import itertools
import math
import operator

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

LOGICAL = pl.DeviceIdType.LOGICAL


def is_traced(*values):
    """Return whether any of some values is traced: of others nothing is compiled."""
    return any(isinstance(value, jax.core.Tracer) for value in values)


def minimum(a, b):
    """Return the smaller of two integers."""
    return jnp.minimum(a, b) if is_traced(a, b) else min(a, b)


def maximum(a, b):
    """Return the larger of two integers."""
    return jnp.maximum(a, b) if is_traced(a, b) else max(a, b)


def div(a, b):
    """Return the quotient of integers that are not negative: one operation of a kernel, where `//`
    is nine to floor those that are, and a division that minds signs five by a power of two."""
    if _is_power_of_two(b):
        return a >> b.bit_length() - 1 if b > 1 else a
    return lax.div(a, operand(b)) if is_traced(a) else a // b


def rem(a, b):
    """Return the remainder of integers that are not negative."""
    if _is_power_of_two(b):
        return a & b - 1 if b > 1 else 0
    return lax.rem(a, operand(b)) if is_traced(a) else a % b


def _is_power_of_two(b):
    return isinstance(b, int) and b > 0 and b & (b - 1) == 0


def operand(b):
    """Return an integer in 32 bits, whichever JAX would make of it."""
    return np.int32(b) if isinstance(b, int) else b


def is_full(ranges):
    """Return whether a box of ranges (low, high) has any element."""
    return functools.reduce(operator.and_, (low < high for low, high in ranges))


def multiple(index, divisor):
    """Return an index, known to the compiler to be a multiple of the divisor."""
    return index if isinstance(index, int) else pl.multiple_of(index, divisor)


def signal(semaphore, device):
    """Add 1 to a semaphore of another device."""
    pl.semaphore_signal(semaphore, 1, device_id=jnp.int32(device), device_id_type=LOGICAL)


def remote_copy(read, write, sent, received, device):
    """Return the copy of a part of a shard to one on another device. It adds its bytes to `sent`
    here once it has left, and to `received` there once it has come."""
    to = {"device_id": jnp.int32(device), "device_id_type": LOGICAL}
    return pltpu.make_async_remote_copy(read, write, sent, received, **to)


def wait_for(part, semaphore):
    """Wait until a DMA semaphore has counted as many bytes as a part of a shard has."""
    pltpu.make_async_copy(part, part, semaphore).wait()


def tile_at(shard, start, extents):
    """Return the part of a shard that begins at `start`, along each dimension at a multiple of its
    extent."""
    ends = zip(start, extents, strict=True)
    return shard.at[tuple(pl.ds(multiple(low, extent), extent) for low, extent in ends)]


def far_apart(place, count):
    """Return the number in a place when those below a count are taken in steps of some 0.41 of it.

    Receivers are numbered from a device on: those that it sends to at a time are far apart then,
    and all links are at work. They stay in order where the count is not known, or so large that
    the products below would not fit 32 bits.
    """
    if not isinstance(count, int) or count > 1 << 16:
        return place
    steps = itertools.count(max(round(0.41 * count), 1))
    return rem(place * next(step for step in steps if math.gcd(step, count) == 1), count)


def each(count, visit, first=0):
    """Call visit(number) for every number below a count."""

    def one(number, carry):
        visit(number)
        return carry

    lax.fori_loop(np.int32(first), jnp.int32(count), one, np.int32(0))


def digits_of(number, sizes, near=()):
    """Return the digits of a number in a mixed radix of these sizes, the first one the highest;
    each counted on from that of `near`, modulo its size, so that not all begin with one."""
    digits = []
    for axis in reversed(range(len(sizes))):
        digits.append(rem(number + near[axis] if near else number, sizes[axis]))
        number = div(number, sizes[axis])
    return digits[::-1]
