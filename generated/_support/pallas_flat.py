"""Shift the elements of a vector in VMEM, where it is stored in rows of 128."""

import jax.numpy as jnp
from jax import lax
from jax.experimental.pallas import tpu as pltpu

from .pallas_peers import div, rem


def shifted_flat(words, by, chunk):
    """Shift the words of a vector's window to higher indices by `by`, and return the first
    `chunk` words as [rows, 128]."""
    extent = words.size
    words = words.reshape(-1, 128)
    by = rem(by + extent, extent)
    rows, lanes = div(by, 128), rem(by, 128)
    words = pltpu.roll(words, lanes, 1)
    carried = pltpu.roll(words, rem(rows + 1, words.shape[0]), 0)
    lane = lax.broadcasted_iota(jnp.int32, words.shape, 1)
    words = jnp.where(lane < lanes, carried, pltpu.roll(words, rows, 0))
    return words[: chunk // 128]
