"""Shifting in VMEM: elements of a window are moved to where they stand in a chunk or a block.

What can be shifted are 32-bit words, as which elements of 16 and 8 bits travel here.
"""

import jax.numpy as jnp
from jax import lax
from jax.experimental.pallas import tpu as pltpu

from .pallas_peers import div, rem


def words_of(values):
    """Return the elements as 32-bit words."""
    size = values.dtype.itemsize
    if size == 4:
        return values
    integer = jnp.dtype(f"int{8 * size}")
    if values.dtype != integer:
        values = lax.bitcast_convert_type(values, integer)
    return values.astype(jnp.int32)


def elements_of(words, dtype):
    """Return the elements that `words_of` took."""
    size = jnp.dtype(dtype).itemsize
    if size == 4:
        return words
    integer = jnp.dtype(f"int{8 * size}")
    if dtype == integer:
        return words.astype(dtype)
    return lax.bitcast_convert_type(words.astype(integer), dtype)


def shifted(values, by, chunk, rolled):
    """Return the words of a window moved to higher indices, by so much a dimension, and cut to a
    chunk; `rolled`: the dimensions along which any window moves.

    What goes around the end of the window is beyond the chunk, or masked.
    """
    words = words_of(values)
    if len(chunk) == 1:
        return _shifted_flat(words, by[0], chunk[0])
    for axis in rolled:
        extent = words.shape[axis]
        words = pltpu.roll(words, rem(by[axis] + extent, extent), axis)
    return words[..., : chunk[-2], : chunk[-1]]


def _shifted_flat(words, by, chunk):
    """Return the words of a vector's window, [rows, 128]."""
    extent = words.size
    words = words.reshape(-1, 128)
    by = rem(by + extent, extent)
    rows, lanes = div(by, 128), rem(by, 128)
    words = pltpu.roll(words, lanes, 1)
    carried = pltpu.roll(words, rem(rows + 1, words.shape[0]), 0)
    lane = lax.broadcasted_iota(jnp.int32, words.shape, 1)
    words = jnp.where(lane < lanes, carried, pltpu.roll(words, rows, 0))
    return words[: chunk // 128]


def fill(window, chunk, by, extents, rolled):
    """Fill a chunk from a window whose elements are moved."""
    words = shifted(window[...], by, extents, rolled)
    elements = elements_of(words, chunk.dtype)
    chunk[...] = elements.reshape(extents) if len(extents) == 1 else elements


def merge(window, y, by, part, block, extents, rolled):
    """Write a part of a block from a window whose elements are moved."""
    words = shifted(window[...], by, extents, rolled)
    if len(extents) == 1:
        rows, lanes = (lax.broadcasted_iota(jnp.int32, words.shape, axis) for axis in (0, 1))
        places = [128 * rows + lanes]
    else:
        places = [lax.broadcasted_iota(jnp.int32, extents, axis) for axis in range(len(extents))]
    inside = True
    for place, (low, high), (at, _) in zip(places, part, block, strict=True):
        inside = inside & (place >= low - at) & (place < high - at)
    old = words_of(y[...])
    merged = jnp.where(inside, words, old.reshape(words.shape) if len(extents) == 1 else old)
    elements = elements_of(merged, y.dtype)
    y[...] = elements.reshape(extents) if len(extents) == 1 else elements
