"""Launches of a limited number of programs, each looping over many blocks."""

import math

BROAD = 4  # the factor on the usual warps and bytes in flight per program


def few(tiles, start, most):
    """Return three values for at most `most` programs on shards aligned to `start` elements: the
    `Block`, the number of programs, and their launch options. Each program strides over the blocks
    of all tiles, so every program uses all links."""
    block = tiles.block(start, BROAD)
    most = min(block.number, most)
    spread = (n for n in range(most, 0, -1) if n == block.number or math.gcd(n, tiles.number) == 1)
    return block, next(spread), {"num_warps": 4 * BROAD}
