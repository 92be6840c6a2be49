"""Elements as integers of their width, which every move preserves bit for bit."""

import jax.numpy as jnp
from jax import lax


def bits_of(dtype):
    """Return the integer dtype of the same width."""
    return jnp.dtype(f"int{8 * jnp.dtype(dtype).itemsize}")


def by_bits(move, x):
    """Apply `move` to the elements of an array as integers."""
    return lax.bitcast_convert_type(move(lax.bitcast_convert_type(x, bits_of(x.dtype))), x.dtype)
