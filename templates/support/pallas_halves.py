"""Elements of 64 bits, which TPU kernels do not support: one half moves after the other."""

import jax.numpy as jnp


def in_halves(moved, x, call):
    """Apply `moved` to 64-bit elements, as integers."""
    halves = (x & 0xFFFFFFFF).astype(jnp.uint32), (x >> 32).astype(jnp.int32)
    low, high = (moved(half, call) for half in halves)
    return (high.astype(jnp.int64) << 32) | low.astype(jnp.int64)
