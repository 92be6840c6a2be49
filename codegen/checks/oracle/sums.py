"""The meaning of unreduced axes, by definition: arrays of terms, and their reduction.

A tensor of terms is an array with an extra first dimension, which has one term for each coordinate
along the unreduced axes and is sharded over them. Imports only numpy and the oracle.

Sums are compared bit by bit, although the order in which floats are added is not fixed: all terms
are small integers, so that every sum of some of them is exact in the dtype. Maxima and minima are
compared bit by bit too: no term is NaN or -0.0, for which XLA's choice is arbitrary.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from shardwright.codegen.checks.oracle.definition import Placement, Ref, shard_numbers

Integers = npt.NDArray[np.int64]
Numbers = npt.NDArray[Any]  # int64, or float64 for float dtypes

# For each dtype, the largest n such that it represents all integers up to n exactly.
_EXACT = {
    "bool": 1,
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
# Makes both halves of a wide number significant, to expose a sum that was narrowed to 32 bits.
_SPREAD = {"int64": 2**32 + 1, "float64": 2**28 + 1}


def array_of(placement: Placement) -> Placement:
    """Return the placement of the array of terms, whose first dimension is split by the unreduced
    axes."""
    if not placement.unreduced:
        return placement
    return replace(placement, dims=(placement.unreduced, *placement.dims), unreduced=())


def array_shape(placement: Placement, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of the array of terms or, without unreduced axes, of the tensor."""
    return (terms_of(placement), *shape) if placement.unreduced else tuple(shape)


def terms_of(placement: Placement) -> int:
    """Return the number of terms in a sum."""
    return math.prod(placement.ref_size(ref) for ref in placement.unreduced)


def terms_of_target(source: Placement, target: Placement) -> tuple[tuple[int, ...], ...]:
    """Return, for every target term, the source terms that form it: they have the same
    coordinates along the axes, matched by name, that stay unreduced. A target term with a
    nonzero coordinate along axes unreduced only in the target has none, because only one holder
    has the value."""
    parts = [_parts(side, other) for side, other in ((source, target), (target, source))]
    kept = [part for part in parts[1] if part in parts[0]]
    new = [part for part in parts[1] if part not in parts[0]]
    return tuple(
        tuple(
            number
            for number, own in enumerate(_coordinates(parts[0]))
            if all(own[part] == wanted[part] for part in kept)
            and all(wanted[part] == 0 for part in new)
        )
        for wanted in _coordinates(parts[1])
    )


def made_of(
    source: Placement, target: Placement, *, transposed: bool
) -> tuple[tuple[int, ...], ...]:
    """Return `terms_of_target` or, for a `transposed` reshard, which moves cotangents, the
    single term to which each target term contributed."""
    if transposed:
        return tuple((term,) for term in target_of_terms(target, source))
    return terms_of_target(source, target)


def terms_held(placement: Placement) -> dict[int, int]:
    """Return the index of each device's term; 0 if there are no terms."""
    if not placement.unreduced:
        return dict.fromkeys(placement.device_ids, 0)
    return {device: numbers[0] for device, numbers in shard_numbers(array_of(placement)).items()}


def target_of_terms(source: Placement, target: Placement) -> tuple[int, ...]:
    """Return, for every source term, the index of the target term to which it contributes."""
    made = [(term, n) for n, of in enumerate(terms_of_target(source, target)) for term in of]
    return tuple(number for _, number in sorted(made))


Part = tuple[str, int, int, int]
"""A part of an axis: the axis's name and size, the part's pre-size, and the product of its
pre-size and size."""


def _parts(side: Placement, other: Placement) -> list[Part]:
    """Return the unreduced axes of a side, cut at the borders of the other side's axes of the same
    name and size."""
    sizes = dict(side.axes)
    own = [_borders(ref, sizes) for ref in side.unreduced]
    others = [_borders(ref, dict(other.axes)) for ref in other.unreduced]
    found = []
    for name, size, low, high in own:
        cuts = {low, high}
        for part in (*own, *others):
            cuts |= {cut for cut in part[2:] if part[:2] == (name, size) and low < cut < high}
        found += [(name, size, *pair) for pair in itertools.pairwise(sorted(cuts))]
    return found


def _borders(ref: Ref, sizes: dict[str, int]) -> Part:
    name, pre, size = ref
    if pre is None or size is None:
        return name, sizes[name], 1, sizes[name]
    return name, sizes[name], pre, pre * size


def _coordinates(parts: Sequence[Part]) -> Iterator[dict[Part, int]]:
    """Yield the coordinates of every term along all parts, in term order."""
    counts = (range(high // low) for _, _, low, high in parts)
    for each in itertools.product(*counts):
        yield dict(zip(parts, each, strict=True))


def reductions(
    shape: Sequence[int], dtype: str, parts: Sequence[int], operator: str
) -> Iterator[tuple[Numbers, Numbers]]:
    """Yield pairs (terms, values) of shapes [terms, *shape] and [values, *shape]; term i
    contributes to value `parts[i]`.

    There are enough pairs that no two elements agree in all of them, and that every term decides
    the value in some pair.
    """
    if operator == "sum":
        yield from sums(shape, dtype, parts)
        return
    yield _ends(shape, dtype, parts, operator)
    yield from _extrema(shape, dtype, parts, operator)


def _groups(parts: Sequence[int]) -> list[list[int]]:
    return [[i for i, part in enumerate(parts) if part == n] for n in range(max(parts) + 1)]


def _extrema(
    shape: Sequence[int], dtype: str, parts: Sequence[int], operator: str
) -> Iterator[tuple[Integers, Integers]]:
    """Yield pairs (terms, values) in which every term is the extremum for some elements. In
    every second pair, all terms are negative."""
    groups = _groups(parts)
    top = min(_EXACT.get(dtype, _WIDE), _WIDE)
    signed = dtype != "bool" and not dtype.startswith("uint")
    numbers = np.arange(len(groups) * math.prod(shape), dtype=np.int64)
    numbers = numbers.reshape(len(groups), *shape)
    digits, left, plane = numbers, numbers.size, 0
    while plane < max(2, *map(len, groups)) or left > 1:
        base = top if signed else top + 1
        lift = -top if signed and plane % 2 == 0 else 0
        largest = digits % base
        terms = np.zeros((len(parts), *shape), dtype=np.int64)
        for number, group in enumerate(groups):
            for place, term in enumerate(group):
                # The distance from the largest term varies with term, element and plane, so that a
                # term in the wrong place changes some value.
                less = 1 + (numbers[number] * 7 + 3 * place + plane) % base
                wins = (numbers[number] + plane) % len(group) == place
                below = np.maximum(largest[number] - less, 0)
                terms[term] = np.where(wins, largest[number], below)
        spread = _SPREAD.get(dtype, 1)
        both = (terms + lift) * spread, (largest + lift) * spread
        if operator == "min":
            both = (-both[0], -both[1]) if signed else (top - both[0], top - both[1])
        yield both
        digits, left, plane = digits // base, -(-left // base), plane + 1


def _ends(
    shape: Sequence[int], dtype: str, parts: Sequence[int], operator: str
) -> tuple[Numbers, Numbers]:
    """Return a pair (terms, values) whose terms are the dtype's lowest or highest value: all
    lowest, all highest, or mixed."""
    ends = identity(dtype, "max"), identity(dtype, "min")
    kind = np.arange(math.prod(shape)).reshape(shape) % 3
    turn = np.arange(math.prod(shape)).reshape(shape) // 3
    groups = _groups(parts)
    number = np.float64 if "float" in dtype else np.int64
    terms: Numbers = np.empty((len(parts), *shape), dtype=number)
    for group in groups:
        for place, term in enumerate(group):
            high = (kind == 1) | ((kind == 2) & (turn % len(group) == place))
            terms[term] = np.where(high, ends[1], ends[0])
    function = np.maximum if operator == "max" else np.minimum
    values: Numbers = np.stack([function.reduce(terms[group]) for group in groups])
    return terms, values


def identity(dtype: str, operator: str) -> float | int:
    """Return the neutral element: zero, or the lowest or highest value of the dtype.

    >>> identity("int8", "max"), identity("float32", "min"), identity("float8_e4m3fn", "max")
    (-128, inf, -448.0)
    """
    if operator == "sum":
        return 0
    if dtype == "float8_e4m3fn":  # this dtype has no infinity
        return -448.0 if operator == "max" else 448.0
    if "float" in dtype:
        return -math.inf if operator == "max" else math.inf
    if dtype == "bool":
        return int(operator == "min")
    ends = np.iinfo(dtype)
    return int(ends.min if operator == "max" else ends.max)


def sums(
    shape: Sequence[int], dtype: str, parts: Sequence[int]
) -> Iterator[tuple[Integers, Integers]]:
    """Yield pairs (terms, sums) of shapes [terms, *shape] and [sums, *shape]; term i is added to
    sum `parts[i]`.

    There are enough pairs that no two elements agree in all of them, and no term is zero in every
    pair. In each pair, an element has two nonzero terms, one of them negative.
    """
    count = max(parts) + 1
    groups = _groups(parts)
    base = max(min(_EXACT.get(dtype, _WIDE), _WIDE) // 2, 2)
    spread = _SPREAD.get(dtype, 1)
    numbers = np.arange(count * math.prod(shape), dtype=np.int64).reshape(count, *shape)
    digits, left, plane = numbers, numbers.size, 0
    while plane < max(map(len, groups)) or left > 1:
        # The excess cancels in the sum, so a lost or doubled term changes the result.
        total, extra = digits % base, 1 + (numbers * 7 + plane) % base
        terms = np.zeros((len(parts), *shape), dtype=np.int64)
        for number, group in enumerate(groups):
            _add(terms, group, numbers[number] + plane, total[number], extra[number])
        yield terms * spread, total * spread
        digits, left, plane = digits // base, -(-left // base), plane + 1


def _add(
    terms: Integers, group: Sequence[int], turn: Integers, total: Integers, extra: Integers
) -> None:
    """Distribute a sum over a group's terms: one term is the sum plus an excess, the next is minus
    the excess."""
    if len(group) == 1:
        terms[group[0]] = total
        return
    for place, term in enumerate(group):
        first, second = turn % len(group) == place, (turn + 1) % len(group) == place
        terms[term] = np.where(first, total + extra, np.where(second, -extra, 0))


# The fraction bits of dtypes that are rounded from float32, and of dtypes not added as float32.
_FRACTIONS = {"float8_e4m3fn": 3, "float8_e5m2": 2, "float16": 10, "bfloat16": 7}
_ADDED = {"float64": 52}


def bound(terms: Numbers, dtype: str, *, rounds_each: bool = False) -> Numbers:
    """Return the largest error of a sum of terms [terms, ...], for any order. `rounds_each`:
    whether narrow floats may be rounded after each addition.

    n terms take n - 1 additions, each with a relative error of half a unit in the last place;
    floats of fewer than 32 bits are added as float32, and rounded once at the end. That rounding
    may err by a whole unit: Triton's interpreter truncates to bfloat16.
    """
    smallest = {"float16": 2.0**-24, "float8_e4m3fn": 2.0**-9, "float8_e5m2": 2.0**-16}
    size, times = np.abs(terms).sum(axis=0), len(terms) - 1
    if rounds_each and dtype in _FRACTIONS:
        most = times * smallest.get(dtype, 0.0)
        return np.asarray(((1 + 2.0 ** -_FRACTIONS[dtype]) ** times - 1) * size + most)
    half = 2.0 ** -(_ADDED.get(dtype, 23) + 1)
    added = times * half / (1 - len(terms) * half) * size
    if dtype not in _FRACTIONS:
        return np.asarray(added)
    exact = np.abs(terms.sum(axis=0))
    return np.asarray(
        added + 2.0 ** -_FRACTIONS[dtype] * (exact + added) + smallest.get(dtype, 0.0)
    )
