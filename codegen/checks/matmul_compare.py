"""Comparisons of emitted matmuls, for every backend. Used in workers only."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from shardwright.codegen.checks.compare import MismatchError, expect
from shardwright.codegen.checks.matmul_case import SIDES, MatmulCase
from shardwright.codegen.checks.oracle import definition as oracle
from shardwright.codegen.checks.oracle.products import Numbers, Product
from shardwright.codegen.checks.oracle.sums import array_of, array_shape


def constants(module: ModuleType, case: MatmulCase) -> None:
    """Compare the module's constants and index functions with the description and the oracle."""
    for name, text in case.texts:
        expect(name, getattr(module, name), text)
    expect("DTYPE", module.DTYPE, case.dtype)
    expect("OUT_DTYPE", module.OUT_DTYPE, case.out_dtype)
    for side, shape, place in zip(SIDES, case.shapes, case.placements, strict=True):
        expect(f"{side.upper()}_SHAPE", tuple(getattr(module, f"{side.upper()}_SHAPE")), shape)
        box, array = getattr(module, f"{side}_box"), array_of(place)
        held = oracle.holdings(array, array_shape(place, shape))
        for position, device in enumerate(place.device_ids):
            ends = tuple(int(end) for end in box(position))
            ranges = [range(*pair) for pair in zip(ends[::2], ends[1::2], strict=True)]
            wanted = [list(along) for along in held[device]]
            expect(f"{side}_box({position})", [list(each) for each in ranges], wanted)


def wide_numbers(values: Numbers) -> Numbers:
    """Convert floats to float64; return integers unchanged."""
    is_integer = np.issubdtype(values.dtype, np.integer)
    return values if is_integer else values.astype(np.float64)


def same_product(found: Numbers, product: Product, dtype: str) -> None:
    """Raise MismatchError unless `found` equals the product's result, within its tolerance."""
    wanted = product.result
    if product.within is not None:
        near = np.abs(found - wanted) <= product.within
    elif np.issubdtype(found.dtype, np.integer):
        near = found == wanted.astype(dtype)
    else:
        near = found == wanted
    if near.all():
        return
    place = tuple(int(each) for each in np.argwhere(~near)[0])
    raise MismatchError(f"result at {place}: got: {found[place]}, expected: {wanted[place]}")
