"""The sample of devices that a self-check proves on a large mesh."""

import itertools
import math

# Larger meshes are proved at a sample of devices.
PROVED, SAMPLED = 512, 32


def spread(count):
    """Return the positions to prove: all if there are few; otherwise the ends, and a sample whose
    coordinates differ along every axis of the mesh."""
    if count <= PROVED:
        return range(count)
    start = count * 377 // 610  # the golden section: multiples spread along every axis
    step = next(step for step in itertools.count(start) if math.gcd(step, count) == 1)
    return sorted({0, count - 1, *(n * step % count for n in range(SAMPLED))})
