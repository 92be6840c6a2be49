"""Shifts in VMEM, which move the elements of a window to their place in a chunk or a block.

The hardware shifts only 32-bit words, so elements of 16 and 8 bits are widened to words.
"""

import jax.numpy as jnp
from jax import lax
from jax.experimental.pallas import tpu as pltpu

from .pallas_peers import rem


def words_of(values):
    size = values.dtype.itemsize
    if size == 4:
        return values
    integer = jnp.dtype(f"int{8 * size}")
    if values.dtype != integer:
        values = lax.bitcast_convert_type(values, integer)
    return values.astype(jnp.int32)


def elements_of(words, dtype):
    """Invert `words_of`."""
    size = jnp.dtype(dtype).itemsize
    if size == 4:
        return words
    elements = words.astype(jnp.dtype(f"int{8 * size}"))
    return elements if elements.dtype == dtype else lax.bitcast_convert_type(elements, dtype)


def shifted(values, by, chunk, rolled):
    """Return the words of a window, shifted to higher indices by `by` and cut to the shape `chunk`;
    `rolled`: the dimensions along which some window is shifted.

    Words that wrap around the end of the window are beyond the chunk, or the caller masks them.
    """
    words = words_of(values)
    if len(chunk) == 1:
        from .pallas_flat import shifted_flat  # only if the tensor is a vector

        return shifted_flat(words, by[0], chunk[0])
    for axis in rolled:
        extent = words.shape[axis]
        words = pltpu.roll(words, rem(by[axis] + extent, extent), axis)
    return words[..., : chunk[-2], : chunk[-1]]


def fill(window, chunk, by, rolled):
    """Fill a chunk from a window, shifting its elements."""
    words = shifted(window[...], by, chunk.shape, rolled)
    chunk[...] = elements_of(words, chunk.dtype).reshape(chunk.shape)


def merge(window, y, by, part, block, rolled):
    """Write the range `part` of a block from a window, shifting its elements, and keep the rest of
    the block; `part`, `block`: ranges (low, high) per dimension."""
    words = shifted(window[...], by, y.shape, rolled)
    places = [lax.broadcasted_iota(jnp.int32, words.shape, axis) for axis in range(words.ndim)]
    if len(block) == 1:
        rows, lanes = places
        places = [128 * rows + lanes]
    inside = True
    for place, (low, high), (at, _) in zip(places, part, block, strict=True):
        inside = inside & (place >= low - at) & (place < high - at)
    merged = jnp.where(inside, words, words_of(y[...]).reshape(words.shape))
    y[...] = elements_of(merged, y.dtype).reshape(y.shape)
