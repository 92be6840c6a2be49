"""Samples of the devices of a large mesh, for proofs in a self-check."""

import itertools
import math

SAMPLED = 32  # the size of a sample


def sampled(count):
    """Return the first position, the last, and a sample whose coordinates vary along every axis of
    a mesh."""
    start = count * 377 // 610  # the golden ratio, whose multiples spread along every axis
    step = next(step for step in itertools.count(start) if math.gcd(step, count) == 1)
    return sorted({0, count - 1, *(n * step % count for n in range(SAMPLED))})
