"""Pieces of a matmul's array that do not begin at memory tiles. Kernels take them evenly spaced."""

import jax.numpy as jnp
from jax import lax


def spaced(x, axis, pitch, *pieces):
    """Return the pieces (start, size) of an array along an axis as one array, each piece padded
    with zeros to `pitch`."""
    found = []
    for start, size in pieces:
        ends = [(0, (pitch - size) * (other == axis)) for other in range(x.ndim)]
        found.append(jnp.pad(lax.slice_in_dim(x, start, start + size, axis=axis), ends))
    return jnp.concatenate(found, axis=axis)


def closed(x, axis, pitch, *pieces):
    """Invert `spaced`."""
    ends = ((n * pitch, n * pitch + size) for n, (_, size) in enumerate(pieces))
    return jnp.concatenate([lax.slice_in_dim(x, *each, axis=axis) for each in ends], axis=axis)
