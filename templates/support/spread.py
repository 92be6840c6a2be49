"""The devices on which a self-check proves transfers: all, or a sample of a large mesh."""

PROVED = 512  # the largest number of devices that are all checked


def spread(count):
    """Return the positions to check: all if there are at most `PROVED`, otherwise a sample."""
    if count <= PROVED:
        return range(count)
    from .sampled import sampled  # only for larger meshes

    return sampled(count)


def at_some(count):
    """Return " at N of M devices" if only some of `count` devices are checked, else ""."""
    checked = len(spread(count))
    return "" if checked == count else f" at {checked} of {count} devices"
