"""Padded shards along axes on which some shard's range does not begin at its slot."""

import jax.numpy as jnp
from jax import lax


def slotted(x, axes, sizes):
    """Return an array with the ranges of each axis in `axes` one after another, each padded to the
    axis's slot size."""
    for axis, ranges in axes.items():
        parts = [lax.slice_in_dim(x, low, high, axis=axis) for low, high in ranges]
        lacks = [sizes[axis] - part.shape[axis] for part in parts]
        ends = [[(0, lack * (a == axis)) for a in range(x.ndim)] for lack in lacks]
        x = jnp.concatenate([*map(jnp.pad, parts, ends)], axis)
    return x


def gathered(y, axes, sizes):
    """Invert `slotted`: return the ranges in slots of each axis, without their padding."""
    for axis, ranges in axes.items():
        starts = (slot * sizes[axis] for slot in range(len(ranges)))
        ends = ((at, at + high - low) for at, (low, high) in zip(starts, ranges, strict=True))
        y = jnp.concatenate([lax.slice_in_dim(y, *each, axis=axis) for each in ends], axis)
    return y
