"""The values of padded rows that do not affect the results of an op."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from shardwright.ir.program import Param

Fill = Literal["", "zero", "one", "least", "greatest", "ones"]
"""The value that an op which combines rows must read in padded rows: the neutral element of the
combination. "ones" has all bits set."""
FLOATS = frozenset({"f16", "bf16", "f32", "f64"})
DTYPES = FLOATS | {"bool", *(f"{sign}{bits}" for sign in "iu" for bits in (8, 16, 32, 64))}
"""Dtypes that have a neutral element for every reduction."""


def neutral(fill: Fill, dtype: str) -> Param:
    """Return the number that a fill is in a dtype.

    >>> neutral("least", "f32"), neutral("greatest", "u8"), neutral("ones", "i32")
    (-inf, 255, -1)
    """
    if fill in ("zero", "one"):
        return int(fill == "one")
    if dtype in FLOATS:
        return -math.inf if fill == "least" else math.inf
    if dtype == "bool":
        return fill != "least"
    if fill == "ones" and dtype[0] == "i":
        return -1
    found = np.iinfo({"i": "int", "u": "uint"}[dtype[0]] + dtype[1:])
    return int(found.min if fill == "least" else found.max)
