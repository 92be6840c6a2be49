"""What unreduced axes mean, by definition: arrays of terms, and the sums of these.

A tensor of partial sums is an array with a dimension more, the first, that has a term for every
place along the unreduced axes and is sharded over them. Imports numpy and the oracle only.

Sums are compared bit by bit, although the order in which floats are added is not fixed: all terms
are integers, so small that every sum of some of them is exact in the dtype.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from shardwright.codegen.verify.oracle.definition import Placement, shard_numbers

Integers = npt.NDArray[np.int64]

# The largest integer up to which all are exact.
_EXACT = {
    "int8": 2**7 - 1,
    "uint8": 2**7 - 1,
    "int16": 2**15 - 1,
    "uint16": 2**15 - 1,
    "float8_e4m3fn": 2**4,
    "float8_e5m2": 2**3,
    "float16": 2**11,
    "bfloat16": 2**8,
}
_WIDE = 2**20
# What makes both halves of a wide number count, so that a narrowed sum shows.
_SPREAD = {"int64": 2**32 + 1, "float64": 2**28 + 1}


def array_of(placement: Placement) -> Placement:
    """The placement of the array of terms: its first dimension is split by the unreduced axes."""
    if not placement.unreduced:
        return placement
    return replace(placement, dims=(placement.unreduced, *placement.dims), unreduced=())


def array_shape(placement: Placement, shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of the array of terms, that of the tensor where there are none."""
    return (terms_of(placement), *shape) if placement.unreduced else tuple(shape)


def terms_of(placement: Placement) -> int:
    """How many terms a tensor is the sum of."""
    return math.prod(placement.ref_size(ref) for ref in placement.unreduced)


def parts_of_sums(source: Placement, target: Placement) -> tuple[int, ...]:
    """For every term of the source the number of the target's term that it is a part of: the one
    with its coordinates along the axes, by name, that stay unreduced."""
    numbers = []
    for side in (source, target):
        held = shard_numbers(replace(source, dims=(side.unreduced,)))
        numbers.append([held[device][0] for device in source.device_ids])
    pairs = dict(zip(*numbers, strict=True))
    return tuple(pairs[term] for term in sorted(pairs))


def sums(
    shape: Sequence[int], dtype: str, parts: Sequence[int]
) -> Iterator[tuple[Integers, Integers]]:
    """(terms, sums) for sums of `shape`, [sums, ...]; term i is added to sum `parts[i]`.

    As many as it takes that no two elements agree in all of them, and no term is zero in all.

    In each of them an element has two terms that are not zero, one of them negative.
    """
    count = max(parts) + 1
    groups = [[i for i, part in enumerate(parts) if part == number] for number in range(count)]
    base = max(min(_EXACT.get(dtype, _WIDE), _WIDE) // 2, 2)
    spread = _SPREAD.get(dtype, 1)
    numbers = np.arange(count * math.prod(shape), dtype=np.int64).reshape(count, *shape)
    digits, left, plane = numbers, numbers.size, 0
    while plane < max(map(len, groups)) or left > 1:
        total, extra = digits % base, 1 + (numbers * 7 + plane) % base
        terms = np.zeros((len(parts), *shape), dtype=np.int64)
        for number, group in enumerate(groups):
            _add(terms, group, numbers[number] + plane, total[number], extra[number])
        yield terms * spread, total * spread
        digits, left, plane = digits // base, -(-left // base), plane + 1


def _add(
    terms: Integers, group: Sequence[int], turn: Integers, total: Integers, extra: Integers
) -> None:
    """Put a sum into the terms of a group: all and more into one, minus that into the next."""
    if len(group) == 1:
        terms[group[0]] = total
        return
    for place, term in enumerate(group):
        first, second = turn % len(group) == place, (turn + 1) % len(group) == place
        terms[term] = np.where(first, total + extra, np.where(second, -extra, 0))
