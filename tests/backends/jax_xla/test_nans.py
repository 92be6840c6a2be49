"""Signaling NaNs arrive as they left: where elements are moved nothing computes with them.

The verifier's random bits are such NaNs for a quarter. A loop of XLA's on CPU that chooses integers
and makes 16-bit floats of them chooses floats, at the end of a row in larger ones, which makes NaNs
quiet: at padding, at terms without a value, at boxes that not every device takes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_new_terms import plans_of
from test_xla_steps import check

from shardwright.codegen.checks.oracle.definition import random_bits
from shardwright.ir import Mesh, Reshard

DTYPES = {"bfloat16": 7, "float16": 10, "float32": 23, "float64": 52}
SIX, GRID = Mesh({"x": 6}), Mesh({"x": 2, "y": 4})
CASES = (
    (SIX, (5,), '[{"x"}]', '[{}], unreduced=min{"x"}'),
    (GRID, (1, 9), '[{"x"}, {}]', '[{}, {}], unreduced=max{"x", "y"}'),
    (GRID, (3, 1), "[{}, {}]", '[{"x"}, {"y"}]'),
    (GRID, (15,), "[{}]", '[{"x"}]'),
    (GRID, (21, 31), '[{"x"}, {"y"}]', '[{"y"}, {"x"}]'),
    (GRID, (43, 61), '[{}, {"x"}]', '[{"y"}, {"x"}]'),
)


@pytest.mark.parametrize(
    "dtype",
    [
        pytest.param(
            dtype, marks=pytest.mark.slow if dtype == "bfloat16" else pytest.mark.exhaustive
        )
        for dtype in DTYPES
    ],
)
def test_signaling_nans_arrive(dtype: str, tmp_path: Path) -> None:
    """By both strategies."""
    made = (
        Reshard(shape, dtype, mesh.sharding(source), mesh.sharding(target), target_split=split)
        for split in ("flat", "nested")
        for mesh, shape, source, target in CASES
    )
    check(plans_of(list(made)), tmp_path)


@pytest.mark.parametrize("dtype", DTYPES)
def test_random_bits_are_signaling_nans_for_a_quarter(dtype: str) -> None:
    bits = random_bits((4000,), dtype, 0)
    mantissa = bits & bits.dtype.type((1 << DTYPES[dtype]) - 1)
    top = bits.dtype.type((1 << (8 * bits.itemsize - 1)) - (1 << DTYPES[dtype]))
    quiet = mantissa >> bits.dtype.type(DTYPES[dtype] - 1)
    signaling = (bits & top == top) & (mantissa != 0) & (quiet == 0)
    assert 0.22 < np.mean(signaling) < 0.36
