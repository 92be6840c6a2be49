"""Steps of a plan in plain JAX: groups of devices, and whole shards that move.

Digits (stride, size) of a device's position, major to minor, make a number. `ids`: in which order
of devices each side counts positions, where these differ.
"""

import math

import jax.numpy as jnp
import numpy as np

from .jax_meshes import bits_of


def bits_from(value, dtype):
    """Return a number of a dtype as the integer of its bits."""
    return np.asarray(value, jnp.dtype(dtype)).view(bits_of(dtype))


def number_of(digits, position):
    """Return the number that digits of a position make."""
    number = 0 * position
    for stride, size in digits:
        number = number * size + position // stride % size
    return number


def groups_along(devices, *digits, ids=None):
    """Return the ranks in groups of those that differ in digits only, ordered by them."""
    positions = np.arange(devices)
    number = number_of(digits, positions)
    order = np.lexsort((number, positions - place_of(digits, number)))
    rank = np.argsort(np.argsort(ids or range(devices)))
    return rank[order].reshape(-1, math.prod(size for _, size in digits)).tolist()


def sends_along(devices, held, wanted, ids=None):
    """Return who sends its shard to whom, as ranks: (sender, receiver), the same for those that
    keep theirs. Digits number the shards: `held` those before a step, `wanted` those after it."""
    sides = zip((held, wanted), ids or [range(devices)] * 2, strict=True)
    have, want = (number_of(digits, np.argsort(order)) for digits, order in sides)
    ends = (np.lexsort((have == want, number)).tolist() for number in (have, want))
    return list(zip(*ends, strict=True))


def place_of(digits, number):
    """Return the part of a position whose digits make a number."""
    position = 0
    for stride, size in reversed(digits):
        position, number = position + number % size * stride, number // size
    return position
