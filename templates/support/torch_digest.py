"""Digests of tensors, computed where they are: no copy to the host, no library.

Words of 8 bytes are multiplied by an odd number of their place, folded, multiplied again and added:
another word is another digest, and several differ from theirs with the chance of 64 random bits.
"""

import functools

import torch

WORDS = 1 << 16  # that are multiplied at once
TURN = -7046029254386353131  # 2^64 / golden ratio, odd: between blocks of words
MASK = 0xFFFFFFFF


def digest_of(line):
    """Return the digest, an int64 tensor, of a line of bytes, a multiple of 8."""
    first, second = _factors(line.device)
    total = torch.full((), line.numel(), dtype=torch.int64, device=line.device)
    for words in line.view(torch.int64).split(WORDS):
        mixed = words * first[: len(words)]
        mixed ^= (mixed >> 32) & MASK
        mixed *= second[: len(words)]
        total = total * TURN + mixed.sum()
    return total


@functools.cache
def _factors(home):
    """Return odd numbers by place, twice."""
    found = torch.arange(1, 2 * WORDS + 1, dtype=torch.int64, device=home) * TURN
    for factor in (-4658895280553007687, -7723592293110705685):
        found ^= (found >> 31) & (MASK << 1 | 1)
        found *= factor
    return (found | 1).view(2, WORDS)
