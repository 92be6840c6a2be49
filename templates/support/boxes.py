"""Boxes of a tensor, in plain integers.

A box is a product of half-open ranges, one after another: (low, high, low, high, ...).
"""


def ranges(box):
    """Return an iterator over the (low, high) pairs of a box."""
    return zip(box[::2], box[1::2], strict=True)


def extents(box):
    """Return the shape of a box."""
    return tuple(high - low for low, high in ranges(box))


def common(one, other):
    """Return the intersection of two boxes; its volume is zero if they are disjoint."""
    pairs = zip(ranges(one), ranges(other), strict=True)
    return tuple(end for a, b in pairs for end in (max(a[0], b[0]), min(a[1], b[1])))
