"""Fill the padding of shards with zeros, inside a program."""

import jax.numpy as jnp
from jax import lax

from .boxes import extents


def zeroed(y, target, axes, extent):
    """Return a target shard with zero padding along `axes`; `extent`: its exact shape. Write only
    from the end of the shortest shard on, to avoid a pass over the rest of memory."""
    shapes = [extents(target.box(position)) for position in range(len(target.ids))]
    for axis in axes:
        start = min(shape[axis] for shape in shapes)
        end = lax.slice_in_dim(y, start, None, axis=axis)
        along = start + lax.broadcasted_iota(jnp.int32, end.shape, axis)
        end = jnp.where(along < extent[axis], end, jnp.zeros((), y.dtype))
        y = lax.dynamic_update_slice_in_dim(y, end, start, axis)
    return y


def zero_ends(y, host, receiver):
    """Return the target shard at a position, with zeros along the dimensions in which a reshard
    pads shards."""
    target, whole = host.target, host.target.whole(host.shape)
    short = [axis for axis, size in enumerate(whole) if target.padded[axis] != size]
    return zeroed(y, target, short, extents(target.box(receiver)))
