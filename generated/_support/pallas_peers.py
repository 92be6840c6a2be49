"""Integers, loops, signals, copies and waits of kernels, with names familiar from Pallas. Functions
of integers also take traced values."""

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
    """Return whether any value is traced; concrete values compile nothing."""
    return any(isinstance(value, jax.core.Tracer) for value in values)


def minimum(a, b):
    """Return the smaller of two integers."""
    return jnp.minimum(a, b) if is_traced(a, b) else min(a, b)


def maximum(a, b):
    """Return the larger of two integers."""
    return jnp.maximum(a, b) if is_traced(a, b) else max(a, b)


def div(a, b):
    """Return the quotient of non-negative integers: one operation in a kernel, in which `//` takes
    nine, to floor negative values, and a signed division by a power of two takes five."""
    if _is_power_of_two(b):
        return a >> b.bit_length() - 1 if b > 1 else a
    return lax.div(a, operand(b)) if is_traced(a) else a // b


def rem(a, b):
    """Return the remainder of non-negative integers."""
    if _is_power_of_two(b):
        return a & b - 1 if b > 1 else 0
    return lax.rem(a, operand(b)) if is_traced(a) else a % b


def _is_power_of_two(b):
    return isinstance(b, int) and b > 0 and b & (b - 1) == 0


def operand(b):
    """Return an integer in 32 bits, whatever JAX's default."""
    return np.int32(b) if isinstance(b, int) else b


def is_full(ranges):
    """Return whether a box of ranges (low, high) is non-empty."""
    return functools.reduce(operator.and_, (low < high for low, high in ranges))


def multiple(index, divisor):
    """Return an index that the compiler knows to be a multiple of the divisor."""
    return index if isinstance(index, int) else pl.multiple_of(index, divisor)


def signal(semaphore, device):
    """Add 1 to a semaphore of another device."""
    pl.semaphore_signal(semaphore, 1, device_id=jnp.int32(device), device_id_type=LOGICAL)


def remote_copy(read, write, sent, received, device):
    """Return the copy of part of a shard to another device. It adds its bytes to `sent` on this
    device once they have left, and to `received` on the other once they have arrived."""
    to = {"device_id": jnp.int32(device), "device_id_type": LOGICAL}
    return pltpu.make_async_remote_copy(read, write, sent, received, **to)


def wait_for(part, semaphore):
    """Wait for the DMA of `part`."""
    pltpu.make_async_copy(part, part, semaphore).wait()


def tile_at(shard, start, extents):
    """Return the part of a shard at `start`, which is a multiple of the extent along each
    dimension."""
    ends = zip(start, extents, strict=True)
    return shard.at[tuple(pl.ds(multiple(low, extent), extent) for low, extent in ends)]


def far_apart(place, count):
    """Permute the numbers below `count` by steps of about 0.41 * `count`, and return the number at
    a place.

    Receivers are numbered starting at a device, so simultaneous receivers are far apart and all
    links are busy. The order is unchanged if the count is unknown, or so large that the products
    below would exceed 32 bits.
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
    """Return the digits of a number in a mixed radix of these sizes, highest first; each digit is
    offset by the matching digit of `near`, modulo its size, so that devices start at different
    digits."""
    digits = []
    for axis in reversed(range(len(sizes))):
        digits.append(rem(number + near[axis] if near else number, sizes[axis]))
        number = div(number, sizes[axis])
    return digits[::-1]
