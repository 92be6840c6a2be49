"""Boxes of a tensor, in plain integers.

A box is a product of half-open ranges, one after another: (low, high, low, high, ...).
"""

NOT_RUN = 3  # the exit status of a self-check that ran nothing


def not_run(proved):
    """Print `proved`, the reason why nothing ran and the facts proved without data, and exit
    with status `NOT_RUN`. Status 0 would claim that results are correct."""
    print(f"not run: {proved}")
    raise SystemExit(NOT_RUN)


def ranges(box):
    """Return an iterator over the (low, high) pairs of a box."""
    return zip(box[::2], box[1::2], strict=True)


def extents(box):
    """Return the shape of a box."""
    return tuple(high - low for low, high in ranges(box))
