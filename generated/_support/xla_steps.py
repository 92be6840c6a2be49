"""The ranks that take part in a plan's steps in plain JAX: groups of devices, and senders and
receivers of whole shards.

Digits (stride, size) of a device's position, major to minor, form a number. `ids`: the device
orders of both sides, if they differ.
"""

import math

import jax.numpy as jnp
import numpy as np

from .jax_bits import bits_of


def bits_from(value, dtype):
    """Return an integer with the bits of `value` in a dtype."""
    return np.asarray(value, jnp.dtype(dtype)).view(bits_of(dtype))


def number_of(digits, position):
    """Return the number that digits of a position form."""
    number = 0 * position
    for stride, size in digits:
        number = number * size + position // stride % size
    return number


def groups_along(devices, *digits, ids=None):
    """Return groups of the ranks whose positions differ only in these digits, each group in the
    order of the number that the digits form."""
    positions = np.arange(devices)
    number = number_of(digits, positions)
    order = np.lexsort((number, positions - place_of(digits, number)))
    rank = np.argsort(np.argsort(ids or range(devices)))
    return rank[order].reshape(-1, math.prod(size for _, size in digits)).tolist()


def sends_along(devices, held, wanted, ids=None):
    """Return the (sender, receiver) ranks of all shards; a rank that keeps its shard is both.
    `held`, `wanted`: the digits that number the shards before and after a step."""
    sides = zip((held, wanted), ids or [range(devices)] * 2, strict=True)
    have, want = (number_of(digits, np.argsort(order)) for digits, order in sides)
    ends = (np.lexsort((have == want, number)).tolist() for number in (have, want))
    return list(zip(*ends, strict=True))


def place_of(digits, number):
    """Return the position with this number in the given digits and zeros elsewhere."""
    position = 0
    for stride, size in reversed(digits):
        position, number = position + number % size * stride, number // size
    return position
