"""Fill the padding of shards with zeros, inside a program."""

import functools

import jax.numpy as jnp
import numpy as np
from jax import lax

from .boxes import extents
from .ranks import at


def zeroed(y, target, axes, extent, everywhere=False):
    """Return a target shard with zero padding along `axes`; `extent`: its exact shape. Write
    only from the end of the shortest shard on, to avoid a pass over the rest of memory. If
    `everywhere`, write the whole shard, because XLA copies it anyway; write nothing if it has no
    padding."""

    def padded(y):
        for axis in axes:
            start = 0 if everywhere else least_of(target)[axis]
            end = lax.slice_in_dim(y, start, None, axis=axis)
            along = start + lax.broadcasted_iota(jnp.int32, end.shape, axis)
            end = jnp.where(along < extent[axis], end, jnp.zeros((), y.dtype))
            y = lax.dynamic_update_slice_in_dim(y, end, start, axis)
        return y

    if everywhere:
        return lax.cond((extent < np.array(y.shape)).any(), padded, lambda y: y, y)
    return padded(y)


def zero_ends(y, host, receiver):
    """Return the target shard at a position, with zeros along the dimensions in which a reshard
    pads shards."""
    target, whole = host.target, host.target.whole(host.shape)
    short = [axis for axis, size in enumerate(whole) if target.padded[axis] != size]
    return zeroed(y, target, short, extents(target.box(receiver)))


@functools.cache
def least_of(side):
    """Return the extent of the shortest shard along each dimension."""
    shapes = (extents(side.box(position)) for position in range(len(side.ids)))
    return tuple(map(min, zip(*shapes, strict=True)))


def extent_of(source, target, me):
    """Return the exact shape of the target shard of rank `me`. A rank is a position if both sides
    have the same device order, else an index into the sorted ids."""
    alike = tuple(source.ids) == tuple(target.ids)
    ranks = list(target.ids) if alike else sorted({*source.ids, *target.ids})
    table = np.zeros((len(ranks), len(target.local)), np.int32)
    for position, device_id in enumerate(target.ids):
        table[ranks.index(device_id)] = extents(target.box(position))
    return at(table, me)


def without_padding(a, b, count):
    """Zero the padding of the contracted dimension of two operand shards, from index `count` on."""
    held = jnp.arange(a.shape[-1]) < count
    return jnp.where(held, a, 0).astype(a.dtype), jnp.where(held[:, None], b, 0).astype(b.dtype)
