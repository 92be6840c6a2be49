"""Proofs, for a self-check, that boxes fill a box, on all devices or on a sample of a large
mesh."""

import itertools
import math

from .boxes import extents, ranges

# The largest number of devices that are all checked, and the sample size for larger meshes.
PROVED, SAMPLED = 512, 32


def spread(count):
    """Return the positions to check: all if there are at most `PROVED`; otherwise the first, the
    last, and a sample whose coordinates vary along every axis of the mesh."""
    if count <= PROVED:
        return range(count)
    start = count * 377 // 610  # the golden ratio, whose multiples spread along every axis
    step = next(step for step in itertools.count(start) if math.gcd(step, count) == 1)
    return sorted({0, count - 1, *(n * step % count for n in range(SAMPLED))})


def at_some(count):
    """Return " at N of M devices" if only some of `count` devices are checked, else ""."""
    checked = len(spread(count))
    return "" if checked == count else f" at {checked} of {count} devices"


def volume(box):
    """Return the number of elements of a box; 0 if any range is empty or reversed."""
    return math.prod(max(extent, 0) for extent in extents(box))


def common(one, other):
    """Return the intersection of two boxes; its volume is zero if they are disjoint."""
    pairs = zip(ranges(one), ranges(other), strict=True)
    return tuple(end for a, b in pairs for end in (max(a[0], b[0]), min(a[1], b[1])))


def gap(box, parts):
    """Return the reason why boxes do not cover a box exactly once; "" if they do."""
    have, wanted = sum(map(volume, parts)), volume(box)
    if have != wanted:
        return f"pieces have {have} elements, the target shard {wanted}"
    pairs = itertools.combinations(some(parts), 2)
    return "pieces overlap" if any(volume(common(*pair)) for pair in pairs) else ""


def some(pieces):
    """Return the pieces to check: all, or a sample if there are many."""
    return [pieces[number] for number in spread(len(pieces))]
