"""The meaning of a matmul, by numpy: operands to multiply, and the expected result.

Imports only numpy and the oracle. Integers come from their whole range and wrap. Floats are drawn
twice: as small integers, so that every sum of products is exact in the dtype of the result, in any
order; and from a normal distribution, to be compared within a rounding bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shardwright.codegen.checks.oracle.definition import Placement
from shardwright.codegen.checks.oracle.sums import array_shape

Numbers = npt.NDArray[Any]

EXACT = {
    "float8_e4m3fn": 2**4,
    "float8_e5m2": 2**3,
    "float16": 2**11,
    "bfloat16": 2**8,
    "float32": 2**24,
    "float64": 2**53,
}
"""For each dtype, the largest n such that it represents all integers up to n."""

EPSILON = {
    "float8_e4m3fn": 2.0**-3,
    "float8_e5m2": 2.0**-2,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
    "float32": 2.0**-23,
    "float64": 2.0**-52,
}
"""For each dtype, the distance from 1 to the next larger number."""


@dataclass(frozen=True)
class Product:
    """Two operands and their product.

    `lhs`, `rhs`: arrays, with a first dimension of terms for a partial sum; `within`: the tolerance
    of each element of `result`, None if it is exact.
    """

    lhs: Numbers
    rhs: Numbers
    result: Numbers
    within: Numbers | None


def products(
    dtype: str,
    out_dtype: str,
    shapes: Sequence[Sequence[int]],
    placements: Sequence[Placement],
    seed: int,
) -> Iterator[Product]:
    """Yield operands with their products."""
    rng = np.random.default_rng(seed)
    wanted = [array_shape(place, shape) for place, shape in zip(placements, shapes, strict=True)]
    if dtype not in EXACT:
        ends = np.iinfo(dtype).min, np.iinfo(dtype).max
        given = [rng.integers(*ends, shape, dtype, endpoint=True) for shape in wanted]
        yield _whole(given[0], given[1], placements, out_dtype)
        return
    yield _small(rng, wanted, placements, min(EXACT[out_dtype], EXACT[dtype] ** 2))
    normal = [_rounded(rng.standard_normal(shape), dtype) for shape in wanted]
    yield _near(normal[0], normal[1], placements, dtype, out_dtype)


def value_of(array: Numbers, placement: Placement) -> Numbers:
    """Return the tensor that an array of terms represents. Return an array without terms
    unchanged."""
    if not placement.unreduced:
        return array
    if placement.operator == "sum":
        with np.errstate(over="ignore"):
            return np.asarray(array.sum(axis=0, dtype=array.dtype))
    return np.asarray(array.max(axis=0) if placement.operator == "max" else array.min(axis=0))


def _whole(lhs: Numbers, rhs: Numbers, placements: Sequence[Placement], out_dtype: str) -> Product:
    """Return a product of integers; it wraps on overflow, as do sums of terms."""
    wide = "uint64" if out_dtype.startswith("u") else "int64"
    given = zip((lhs, rhs), placements, strict=True)
    values = [value_of(each, place).astype(wide) for each, place in given]
    with np.errstate(over="ignore"):
        return Product(lhs, rhs, (values[0] @ values[1]).astype(out_dtype), None)


def _small(
    rng: np.random.Generator,
    shapes: Sequence[Sequence[int]],
    placements: Sequence[Placement],
    most: int,
) -> Product:
    """Return a product of small integers in which no sum of products, in any order, exceeds
    `most`."""
    largest, part = 16, 1.0
    while True:
        given = [
            rng.integers(-largest, largest + 1, shape) * (rng.random(shape) < part)
            for shape in shapes
        ]
        sums = [_size(each, place) for each, place in zip(given, placements, strict=True)]
        if (sums[0] @ sums[1]).max(initial=0) <= most:
            values = [value_of(a, place) for a, place in zip(given, placements, strict=True)]
            return Product(given[0], given[1], values[0] @ values[1], None)
        largest, part = (largest // 2, part) if largest > 1 else (1, part * 0.75)


@dataclass(frozen=True)
class Cotangents:
    """The cotangents of a result, of lhs and of rhs, and the tolerances of the last two."""

    result: Numbers
    operands: tuple[Numbers, Numbers]
    within: tuple[Numbers, Numbers] | None


def cotangents(
    product: Product, placements: Sequence[Placement], dtypes: tuple[str, str], seed: int
) -> Cotangents:
    """Return a cotangent of a result and the cotangents of the operands. All are tensors without a
    dimension of terms, because every term of a sum has the cotangent of the sum. `dtypes`: the
    dtypes of the operands and of the result.

    As in `products`, the numbers are small integers and exact, or are drawn from a normal
    distribution.
    """
    rng, part = np.random.default_rng(seed), 1.0
    shape = product.result.shape
    given = list(zip((product.lhs, product.rhs), placements, strict=False))
    lhs, rhs = (np.swapaxes(value_of(each, place), -1, -2) for each, place in given)
    sizes = [np.swapaxes(_size(each, place), -1, -2) for each, place in given]
    if product.within is not None:
        drawn = _rounded(rng.standard_normal(shape), dtypes[1])
        most = np.abs(drawn) @ sizes[1], sizes[0] @ np.abs(drawn)
        near = _cotangent_rounding(shape, placements, dtypes)
        within = most[0] * near[0], most[1] * near[1]
        return Cotangents(drawn, (drawn @ rhs, lhs @ drawn), within)
    while True:
        drawn = rng.integers(-1, 2, shape) * (rng.random(shape) < part)
        most = np.abs(drawn) @ sizes[1], sizes[0] @ np.abs(drawn)
        if max(each.max(initial=0) for each in most) <= min(EXACT[each] for each in dtypes):
            return Cotangents(drawn, (drawn @ rhs, lhs @ drawn), None)
        part *= 0.75


def _cotangent_rounding(
    shape: Sequence[int], placements: Sequence[Placement], dtypes: tuple[str, str]
) -> tuple[float, float]:
    """Return rounding bounds for the cotangents of lhs and rhs, relative to sums of magnitudes.
    They cover the sums on a device, partial sums, earlier additions of terms, and the conversion
    to the operands' dtype."""
    dtype, out_dtype = dtypes
    sums = EPSILON["float64" if out_dtype == "float64" else "float32"]
    devices = len(placements[0].device_ids)
    bound = (devices + 2) * EPSILON[out_dtype] + EPSILON[dtype]
    terms = [devices * EPSILON[out_dtype] * bool(place.unreduced) for place in placements[:2]]
    return (shape[-1] + 2) * sums + bound + terms[1], (shape[-2] + 2) * sums + bound + terms[0]


def _size(array: Numbers, place: Placement) -> Numbers:
    """Return the magnitudes of elements, summed over their terms."""
    sizes: Numbers = np.abs(array).sum(axis=0) if place.unreduced else np.abs(array)
    return sizes


def _rounded(numbers: Numbers, dtype: str) -> Numbers:
    """Clip numbers to [-4, 4], and round them to multiples of twice the dtype's epsilon, which the
    dtype represents."""
    return np.round(np.clip(numbers, -4, 4) / EPSILON[dtype] / 2) * EPSILON[dtype] * 2


def _near(
    lhs: Numbers,
    rhs: Numbers,
    placements: Sequence[Placement],
    dtype: str,
    out_dtype: str,
) -> Product:
    """Return operands, their product in float64, and a rounding bound for a device's sums and for
    adding one partial sum per device."""
    given = list(zip((lhs, rhs), placements, strict=True))
    values = [value_of(each, place) for each, place in given]
    sizes = [_size(each, place) for each, place in given]
    devices = len(placements[0].device_ids)
    sums = "float64" if dtype == "float64" else "float32"
    rounding = (lhs.shape[-1] + 2) * EPSILON[sums] + (devices + 2) * EPSILON[out_dtype]
    terms = sum(EPSILON[dtype] * devices for _, place in given if place.unreduced)
    return Product(lhs, rhs, values[0] @ values[1], (rounding + terms) * (sizes[0] @ sizes[1]))
