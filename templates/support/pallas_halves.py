"""Elements of 64 bits, for which kernels of a TPU have no type: one half moves after the other."""

import jax.numpy as jnp


def in_halves(moved, x, call):
    """Return what `moved` makes of elements of 64 bits, as integers."""
    halves = (x & 0xFFFFFFFF).astype(jnp.uint32), (x >> 32).astype(jnp.int32)
    low, high = (moved(half, call) for half in halves)
    return (high.astype(jnp.int64) << 32) | low.astype(jnp.int64)
