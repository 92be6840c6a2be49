"""Proofs, for a self-check, that boxes fill a box."""

import itertools
import math

from .boxes import common, extents
from .spread import spread


def volume(box):
    """Return the number of elements of a box; 0 if any range is empty or reversed."""
    return math.prod(max(extent, 0) for extent in extents(box))


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
