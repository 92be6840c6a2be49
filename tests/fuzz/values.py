"""What modules are given, as bit patterns, and whether what they return is what it must be.

Where nothing is added every pattern may occur: numbers, zeros of both signs, subnormals, infinities
and NaNs of all payloads. Where terms are added, values whose sums do not depend on the order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import ml_dtypes
import numpy as np
import numpy.typing as npt

from .case import ITEMSIZES, Case
from .reference import Array, Bits, adds, groups, read

_MANTISSA = {"float8_e4m3fn": 3, "float8_e5m2": 2, "float16": 10, "bfloat16": 7,
             "float32": 23, "float64": 52}  # fmt: skip


class WrongError(Exception):
    """A module does not do what it must; the text says what differs."""


def numpy_dtype(dtype: str) -> np.dtype[np.generic]:
    """The numpy dtype of that name, those of `ml_dtypes` among them."""
    return np.dtype(getattr(ml_dtypes, dtype, None) or dtype)


def bits_type(dtype: str) -> np.dtype[np.unsignedinteger]:
    """The unsigned integer of a dtype's width."""
    return np.dtype(f"uint{8 * ITEMSIZES[dtype]}")


def random_bits(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Bits:
    """Any patterns of a dtype; of the rare ones many."""
    if dtype == "bool":
        return rng.integers(0, 2, shape, dtype=np.uint8)
    kind = bits_type(dtype)
    bits = rng.integers(0, np.iinfo(kind).max, shape, dtype=kind, endpoint=True)
    if dtype not in _MANTISSA:
        return bits
    rare = np.array(_rare(dtype), dtype=kind)
    return np.where(rng.random(shape) < 0.3, rng.choice(rare, shape), bits)


def _rare(dtype: str) -> list[int]:
    """Zeros, subnormals, infinities, quiet and signalling NaNs with payloads, of both signs."""
    width, mantissa = 8 * ITEMSIZES[dtype], _MANTISSA[dtype]
    sign, one, most = 1 << (width - 1), 1 << mantissa, (1 << (width - 1)) - 1
    top = most ^ (one - 1)  # infinity, where there is one
    found = [0, 1, one - 1, one >> 1, top, top - 1, top | (one >> 1), top | 1, most]
    return found + [sign | each for each in found]


def given(case: Case, draw: int) -> Bits:
    """The array that the module of a case is given in a draw, without padding."""
    rng = np.random.default_rng([case.id, draw])
    shape = Array.of(case, case.source).shape
    if not adds(case):
        return random_bits(rng, case.dtype, shape)
    if not case.floating:
        return random_bits(rng, case.dtype, shape)
    if draw % 2 or read(case.source).operation:
        return _small(rng, case, shape)
    return _sparse(rng, case, shape)


def _small(rng: np.random.Generator, case: Case, shape: tuple[int, ...]) -> Bits:
    """Integers, zero where terms are too many, of which every sum is exact."""
    exact = 2 ** min(_MANTISSA[case.dtype] + 1, 20)
    most = max(exact // shape[0], 1)
    numbers = rng.integers(-most, most, shape, endpoint=True).astype(np.float64)
    place = rng.random(shape).argsort(axis=0).argsort(axis=0)
    numbers = np.where(place < exact // most, numbers, 0.0)
    return numbers.astype(numpy_dtype(case.dtype)).view(bits_type(case.dtype))


def _sparse(rng: np.random.Generator, case: Case, shape: tuple[int, ...]) -> Bits:
    """Any normal number in one term of every element, and zero in the others."""
    width, one = 8 * ITEMSIZES[case.dtype], 1 << _MANTISSA[case.dtype]
    top = (1 << (width - 1)) - one
    numbers = rng.integers(one, top, shape, dtype=bits_type(case.dtype))
    numbers |= rng.integers(0, 2, shape, dtype=bits_type(case.dtype)) << np.uint8(width - 1)
    term = np.arange(shape[0]).reshape(-1, *[1] * (len(shape) - 1))
    return np.where(term == rng.integers(0, shape[0], shape[1:]), numbers, 0).astype(numbers.dtype)


def cotangent(case: Case, draw: int) -> Bits:
    """What is pulled back to the source in a draw."""
    rng = np.random.default_rng([case.id, draw, 1])
    return random_bits(rng, case.dtype, Array.of(case, case.target).shape)


def pulled(case: Case, array: Bits) -> Bits:
    """The cotangent of the source: that of a sum is that of each of its terms."""
    shape = Array.of(case, case.source).shape
    terms = array.reshape(-1, *case.shape)
    result = np.zeros((math.prod(shape[: len(shape) - len(case.shape)]), *case.shape), array.dtype)
    for befores, (after, *_) in groups(case):
        for before in befores:
            result[before] = terms[after]
    return result.reshape(shape)


def check_target(case: Case, array: Bits, result: Bits, what: str) -> None:
    """Raise WrongError unless `result` is the target's array for the source's `array`."""
    before, after = (each.reshape(-1, *case.shape) for each in (array, result))
    for befores, afters in groups(case):
        value = _together(case, before[list(befores)])
        if len(afters) == 1:
            check_bits(f"{what}, term {afters[0]}", after[afters[0]], value)
        else:
            _check_holder(case, f"{what}, terms {afters}", after[list(afters)], value)


def _check_holder(case: Case, what: str, terms: Bits, value: Bits) -> None:
    """One term of every element has the value, the others what changes no sum."""
    neutral = np.full(value.shape, neutral_bits(case), value.dtype)
    has = terms == value
    check_bits(f"{what}, those without the value", np.where(has, neutral, terms),
               np.broadcast_to(neutral, terms.shape))  # fmt: skip
    count = np.where(value == neutral, 1, has.sum(axis=0))
    check_bits(f"{what}, holders of the value", count, np.ones_like(count))


def neutral_bits(case: Case) -> int:
    """The bits of what changes no sum, maximum or minimum."""
    operation, dtype = read(case.target).operation, numpy_dtype(case.dtype)
    if not operation or case.dtype == "bool":
        return int(operation == "min")
    if case.floating:
        most = np.array(np.inf).astype(dtype)
        most = most if np.isinf(most.astype(np.float64)) else np.array(ml_dtypes.finfo(dtype).max)
        extreme = -most if operation == "max" else most
    else:
        limits = np.iinfo(dtype)
        extreme = np.array(limits.min if operation == "max" else limits.max)
    return int(extreme.astype(dtype).view(bits_type(case.dtype)))


def _together(case: Case, terms: Bits) -> Bits:
    """The sum, maximum or minimum of terms, [terms, ...], as bits."""
    if len(terms) == 1:
        return terms[0]
    operation = {"": np.add, "max": np.maximum, "min": np.minimum}[read(case.source).operation]
    values = terms.view(numpy_dtype(case.dtype))
    if case.floating:
        values = values.astype(np.float64)
    whole = operation.reduce(values, axis=0, dtype=values.dtype)
    return np.asarray(whole).astype(numpy_dtype(case.dtype)).view(bits_type(case.dtype))


def check_bits(what: str, got: npt.NDArray[np.generic], expected: npt.NDArray[np.generic]) -> None:
    """Raise WrongError at the first element that differs."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        raise WrongError(f"{what}: got {got.shape} of {got.dtype}, "
                         f"expected {expected.shape} of {expected.dtype}")  # fmt: skip
    wrong = np.argwhere(got != expected)
    if len(wrong):
        at = tuple(map(int, wrong[0]))
        raise WrongError(
            f"{what}: {len(wrong)} of {got.size} are wrong; {list(at)}: "
            f"got {int(got[at]):#x}, expected {int(expected[at]):#x}"
        )


def assembled(what: str, array: Array, shards: dict[int, Bits]) -> Bits:
    """The array that the padded shards of all devices make.

    Raise WrongError where a device is missing, replicas differ, or padding is not zero.
    """
    if set(shards) != set(array.side.device_ids):
        raise WrongError(f"{what}: on devices {sorted(shards)}, "
                         f"expected {sorted(array.side.device_ids)}")  # fmt: skip
    kind = next(iter(shards.values())).dtype
    padded = np.zeros(array.padded_shape, kind)
    first: dict[tuple[int, ...], int] = {}
    for device, shard in shards.items():
        replica = first.setdefault(array.shard_of(device), device)
        check_bits(f"{what}, device {device} against {replica}", shard, shards[replica])
        padded[array.slot(device)] = shard
    inside = np.zeros(padded.shape, bool)
    inside[array.slots()] = True
    check_bits(f"{what}, padding", np.where(inside, 0, padded).astype(kind), np.zeros_like(padded))
    return padded[array.slots()]


def padded(array: Array, bits: Bits, rng: np.random.Generator, dtype: str) -> Bits:
    """The padded array of an array, any bits in its padding."""
    result = random_bits(rng, dtype, array.padded_shape)
    result[array.slots()] = bits
    return result


def nans_alike(case: Case, bits: Bits) -> Bits:
    """The bits, those of every NaN the same."""
    nans = np.isnan(bits.view(numpy_dtype(case.dtype)).astype(np.float64))
    one = np.array(np.nan).astype(numpy_dtype(case.dtype)).view(bits.dtype)
    return np.where(nans, one, bits)


def has_nothing(case: Case, shard: Bits) -> bool:
    """Whether a target shard is of terms that have no value, which nothing is stored to."""
    places = any(len(afters) > 1 for _, afters in groups(case))
    return places and bool((shard == neutral_bits(case)).all())


def draws(case: Case) -> Iterator[int]:
    """The numbers of the draws that a case is run with: two, that equal elements be few."""
    del case
    yield from range(2)
