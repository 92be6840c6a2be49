"""Integer division, loops, signals, copies and waits for kernels. Functions of integers also take
traced values."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

LOGICAL = pl.DeviceIdType.LOGICAL


def is_traced(*values):
    """Return whether any value is traced. Concrete values are computed in Python, which compiles
    nothing."""
    return any(isinstance(value, jax.core.Tracer) for value in values)


def div(a, b):
    """Return the quotient of non-negative integers in one kernel operation. `//` takes nine,
    because it floors negative values, and a signed division by a power of two takes five."""
    if isinstance(b, int) and b & (b - 1) == 0:
        return a >> (b.bit_length() - 1)
    return lax.div(a, operand(b)) if is_traced(a) else a // b


def rem(a, b):
    """Return the remainder of non-negative integers."""
    if isinstance(b, int) and b & (b - 1) == 0:
        return a & (b - 1)
    return lax.rem(a, operand(b)) if is_traced(a) else a % b


def operand(b):
    """Return a Python integer as a 32-bit integer, independent of JAX's default; return a traced
    value unchanged."""
    return np.int32(b) if isinstance(b, int) else b


def multiple(index, divisor):
    """Return `index` with the hint to the compiler that it is a multiple of `divisor`."""
    return index if isinstance(index, int) else pl.multiple_of(index, divisor)


def signal(semaphore, device):
    """Add 1 to a semaphore of another device."""
    pl.semaphore_signal(semaphore, 1, device_id=jnp.int32(device), device_id_type=LOGICAL)


def remote_copy(read, write, sent, received, device):
    """Return a copy, not yet started, from `read` on this device to `write` on another. It adds its
    bytes to `sent` here once they have left, and to `received` there once they have arrived."""
    to = {"device_id": jnp.int32(device), "device_id_type": LOGICAL}
    return pltpu.make_async_remote_copy(read, write, sent, received, **to)


def wait_for(part, semaphore):
    """Wait for the DMA of `part`."""
    pltpu.make_async_copy(part, part, semaphore).wait()


def each(count, visit, first=0):
    """Call visit(number) for every number from `first` to below `count`."""

    def one(number, carry):
        visit(number)
        return carry

    lax.fori_loop(np.int32(first), jnp.int32(count), one, np.int32(0))
