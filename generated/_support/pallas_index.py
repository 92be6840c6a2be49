"""Integers of kernels: what index functions compute with, of integers as of traced values."""

import functools
import operator

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

LOGICAL = pl.DeviceIdType.LOGICAL


def numpy_of(*values):
    """Return jax.numpy where a value is traced, else numpy, for which nothing is compiled."""
    return jnp if any(isinstance(value, jax.core.Tracer) for value in values) else np


def minimum(a, b):
    """Return the smaller of two integers."""
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else numpy_of(a, b).minimum(a, b)


def maximum(a, b):
    """Return the larger of two integers."""
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else numpy_of(a, b).maximum(a, b)


def div(a, b):
    """Return the quotient of integers that are not negative: one operation of a kernel, where `//`
    is nine to floor those that are."""
    if isinstance(b, int) and b == 1:
        return a
    return lax.div(a, operand(b)) if isinstance(a, jax.core.Tracer) else a // b


def rem(a, b):
    """Return the remainder of integers that are not negative."""
    if isinstance(b, int) and b == 1:
        return 0
    return lax.rem(a, operand(b)) if isinstance(a, jax.core.Tracer) else a % b


def operand(b):
    """Return an integer in 32 bits, whichever JAX would make of it."""
    return np.int32(b) if isinstance(b, int) else b


def negated(condition):
    """Return whether a condition does not hold."""
    return numpy_of(condition).logical_not(condition)


def is_full(ranges):
    """Return whether a box of ranges (low, high) has any element."""
    return functools.reduce(operator.and_, (low < high for low, high in ranges))


def same(shard, other):
    """Return whether two shards are one, by their numbers along each dimension."""
    pairs = zip(shard, other, strict=True)
    return functools.reduce(operator.and_, (a == b for a, b in pairs))


def multiple(index, divisor):
    """Return an index, known to the compiler to be a multiple of the divisor."""
    return index if isinstance(index, int) else pl.multiple_of(index, divisor)


def meet_all(coming, tells, going, hears):
    """Tell all senders that this device has entered the kernel, and hear it of all receivers: they
    may be written to from then on. tells(number), below `coming`: whether a sender is told, and its
    rank; hears(number), below `going`: whether a receiver is heard.

    A device tells again only after all data of the call before have arrived, so that a sender never
    holds two signals of one receiver.
    """
    barrier = pltpu.get_barrier_semaphore()

    def tell(number):
        told, device = tells(number)

        @pl.when(told)
        def signal():
            pl.semaphore_signal(barrier, 1, device_id=device, device_id_type=LOGICAL)

    def add(number, expected):
        return expected + jnp.int32(hears(number))

    each(coming, tell)
    expected = lax.fori_loop(np.int32(0), jnp.int32(going), add, np.int32(0))
    pl.when(expected > 0)(lambda: pl.semaphore_wait(barrier, expected))


def each(count, visit, first=0):
    """Call visit(number) for every number below a count."""

    def one(number, carry):
        visit(number)
        return carry

    lax.fori_loop(np.int32(first), jnp.int32(count), one, np.int32(0))
