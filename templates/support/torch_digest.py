"""Digests of tensors, computed by torch on their device without a copy to the host.

Each word of 8 bytes is multiplied by an odd number that depends on its position, folded, multiplied
again and added. A change of one word always changes the digest; changes of several words are missed
with probability 2^-64.
"""

import functools

import torch

WORDS = 1 << 16  # words multiplied at once
TURN = -7046029254386353131  # 2^64 / golden ratio, odd: the factor of the previous blocks' digest
MASK = 0xFFFFFFFF


def digest_of(line):
    """Return the digest, an int64 tensor, of a flat array of bytes whose length is a multiple of
    8."""
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
    """Return two rows of odd factors, with one factor for each position in a block of words."""
    found = torch.arange(1, 2 * WORDS + 1, dtype=torch.int64, device=home) * TURN
    for factor in (-4658895280553007687, -7723592293110705685):
        found ^= (found >> 31) & (MASK << 1 | 1)
        found *= factor
    return (found | 1).view(2, WORDS)
