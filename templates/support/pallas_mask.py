"""Zeroing of padding in the VMEM of matmul kernels."""

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from .pallas_peers import each, multiple
from .pallas_products import LANES


def mask(block, axis, size, first):
    """Zero a block in VMEM along an axis from `size` on; `first`: the first lane tile that may be
    affected."""

    def one(number):
        start = multiple(number * LANES, LANES)
        at = (*(slice(None),) * axis, pl.ds(start, LANES))
        value = block[at]
        number = lax.broadcasted_iota(jnp.int32, value.shape, axis) + start
        block[at] = jnp.where(number < size, value, jnp.zeros_like(value))

    each(block.shape[axis] // LANES, one, first)
