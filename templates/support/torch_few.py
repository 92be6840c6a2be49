"""Launches of few programs, each of which goes through many blocks."""

import math

BROAD = 4  # times the four warps, and the bytes under way, has each of programs that are to be few


def few(tiles, start, most):
    """Return the block of so many programs at most, for shards that begin at multiples of so many
    elements; how many they are; options of their launch. Each goes through blocks of all tiles in
    turn, so that none has those of one link alone."""
    block = tiles.block(start, BROAD)
    most = min(block.number, most)
    spread = (n for n in range(most, 0, -1) if n == block.number or math.gcd(n, tiles.number) == 1)
    return block, next(spread), {"num_warps": 4 * BROAD}
