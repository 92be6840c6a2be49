"""Integer arithmetic on ranges and piece numbers. The functions also take traced values."""

import functools
import itertools
import math
import operator

import jax.numpy as jnp

from .pallas_peers import div, is_traced, rem


def minimum(a, b):
    """Return the smaller of two integers."""
    return jnp.minimum(a, b) if is_traced(a, b) else min(a, b)


def maximum(a, b):
    """Return the larger of two integers."""
    return jnp.maximum(a, b) if is_traced(a, b) else max(a, b)


def is_full(ranges):
    """Return whether a box of ranges (low, high) is non-empty."""
    return functools.reduce(operator.and_, (low < high for low, high in ranges))


def starts(box, within):
    """Return the start of a box, relative to the shard that covers box `within`."""
    pairs = zip(box[::2], within[::2], strict=True)
    return [jnp.int32(low - start) for low, start in pairs]


def far_apart(place, count):
    """Return the number at `place` in a permutation of the numbers below `count` whose steps are
    about 0.41 * `count`.

    Each device numbers receivers starting from itself, so receivers of simultaneous transfers are
    far apart and all links are busy. The numbers are not permuted if the count is traced, or so
    large that the product below would exceed 32 bits.
    """
    if not isinstance(count, int) or count > 1 << 16:
        return place
    steps = itertools.count(max(round(0.41 * count), 1))
    return rem(place * next(step for step in steps if math.gcd(step, count) == 1), count)


def digits_of(number, sizes, near=()):
    """Return the mixed-radix digits of a number for these sizes, most significant first. Each
    digit is offset by the corresponding number in `near`, modulo its size, so that devices start
    at different digits."""
    digits = []
    for axis in reversed(range(len(sizes))):
        digits.append(rem(number + near[axis] if near else number, sizes[axis]))
        number = div(number, sizes[axis])
    return digits[::-1]
