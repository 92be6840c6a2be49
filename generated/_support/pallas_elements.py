"""Elements that TPU kernels cannot take: booleans, 64-bit integers, and scalars."""

import jax.numpy as jnp


def in_vectors(moved, x, call):
    """Apply `moved` to a shard of any element type: to booleans as bytes, to the two halves of
    64-bit integers one after the other, and to a scalar as a vector of one element."""
    if not x.shape:
        return in_vectors(moved, x.reshape(1), call).reshape(())
    if x.dtype == jnp.bool_:
        return moved(x.astype(jnp.int8), call).astype(jnp.bool_)
    if x.dtype != jnp.int64:
        return moved(x, call)
    halves = (x & 0xFFFFFFFF).astype(jnp.uint32), (x >> 32).astype(jnp.int32)
    low, high = (moved(half, call) for half in halves)
    return (high.astype(jnp.int64) << 32) | low.astype(jnp.int64)
