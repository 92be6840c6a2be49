"""The numbering and summation of block products in the VMEM of matmul kernels.

The matmul is a[batch, i, j] b[batch, j, k].
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

from .pallas_peers import each, multiple

LANES = 128
FIRST = np.int32(0)


class Block(NamedTuple):
    """A product of two blocks: its number, the ring step in which its part arrives, the
    direction of that part (0: to the next device, 1: to the previous one), and the indices of
    the blocks within the part."""

    number: Any
    step: Any
    way: Any = FIRST
    batch: Any = FIRST
    i: Any = FIRST
    j: Any = FIRST
    k: Any = FIRST


def by_way(way, up, down):
    """Return `up` for direction 0, else `down`; both are integers."""
    return jnp.where(way == 0, jnp.int32(up), jnp.int32(down))


def clear(total):
    """Set a block of sums to zero."""
    total[...] = jnp.zeros(total.shape, total.dtype)


def put_product(total, a, b):
    """Set `total` to the product of two blocks: a sum of a single term."""
    total[...] = jnp.dot(a[...], b[...], preferred_element_type=total.dtype)


def add_product(total, a, b, depth):
    """Add the product of two blocks to a block of sums, in steps of `depth` elements along j, which
    are short enough for compact code and long enough to keep the MXU busy."""

    def one(number):
        along = pl.ds(multiple(number * depth, depth), depth)
        total[...] += jnp.dot(a[:, along], b[along, :], preferred_element_type=total.dtype)

    each(a.shape[-1] // depth, one)


def put_sum(into, total, *terms):
    """Add `terms` to a block of sums and write it to `into`, in the dtype of `into`."""
    value = total[...]
    for term in terms:
        value = value + term[...].astype(value.dtype)
    into[...] = value.astype(into.dtype)
