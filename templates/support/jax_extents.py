"""The exact shapes of padded shards, inside a program."""

import jax.numpy as jnp
import numpy as np
from jax import lax

from .boxes import extents
from .ranks import at


def extent_of(source, target, me):
    """Return the exact shape of the target shard of rank `me`. A rank is a position if both sides
    have the same device order, else an index into the sorted ids."""
    alike = tuple(source.ids) == tuple(target.ids)
    ranks = list(target.ids) if alike else sorted({*source.ids, *target.ids})
    table = np.zeros((len(ranks), len(target.local)), np.int32)
    for position, device_id in enumerate(target.ids):
        table[ranks.index(device_id)] = extents(target.box(position))
    return at(table, me)


def zeroed_everywhere(y, axes, extent):
    """Return a target shard with zero padding along `axes`; `extent`: its exact shape. Write the
    whole shard, because XLA copies it anyway, but nothing if it has no padding."""

    def padded(y):
        for axis in axes:
            along = lax.broadcasted_iota(jnp.int32, y.shape, axis)
            y = jnp.where(along < extent[axis], y, jnp.zeros((), y.dtype))
        return y

    return lax.cond((extent < np.array(y.shape)).any(), padded, lambda y: y, y)


def without_padding(a, b, count):
    """Zero the padding of the contracted dimension of two operand shards, from index `count` on."""
    held = jnp.arange(a.shape[-1]) < count
    return jnp.where(held, a, 0).astype(a.dtype), jnp.where(held[:, None], b, 0).astype(b.dtype)
