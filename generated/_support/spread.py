"""The sample of devices that a self-check covers on a large mesh."""

import itertools
import math

# The most devices of which all are checked, and the size of the sample for larger meshes.
PROVED, SAMPLED = 512, 32


def spread(count):
    """Return the positions to check: all if there are at most `PROVED`; otherwise the first, the
    last, and a sample whose coordinates differ along every axis of the mesh."""
    if count <= PROVED:
        return range(count)
    start = count * 377 // 610  # the golden ratio: its multiples spread along every axis
    step = next(step for step in itertools.count(start) if math.gcd(step, count) == 1)
    return sorted({0, count - 1, *(n * step % count for n in range(SAMPLED))})
