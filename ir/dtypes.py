"""The element types of tensors, their sizes in bytes, and their other names."""

from __future__ import annotations

import math
import re
from collections.abc import Collection

import numpy as np

from shardwright.ir.errors import InputError, in_a_line, one_of, unknown
from shardwright.ir.foreign import TORCH_DTYPE, is_a

DTYPES: dict[str, int] = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
}

PACKED = ("int4", "float4_e2m1fn")
"""The packed element types: one byte stores two elements."""

SIZES: dict[str, int] = {**DTYPES, "complex64": 8, "float8_e8m0fnu": 1}
"""Bytes per element, for every element type that is not packed."""

STORED: tuple[str, ...] = (*SIZES, *PACKED)
"""The element types that a stored layout can have."""

SHORT: dict[str, str] = {
    "pred": "bool",
    "i1": "bool",
    "half": "float16",
    "bf16": "bfloat16",
    "c64": "complex64",
    "f8e8m0fnu": "float8_e8m0fnu",
    "f8_e8m0": "float8_e8m0fnu",
    "i4": "int4",
    "s4": "int4",
    "f4e2m1fn": "float4_e2m1fn",
    "float4_e2m1fn_x2": "float4_e2m1fn",
    "f8e4m3fn": "float8_e4m3fn",
    "f8_e4m3": "float8_e4m3fn",
    "f8_e4m3fn": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "f8_e5m2": "float8_e5m2",
    **{f"{letter}{bits}": f"int{bits}" for letter in "is" for bits in (8, 16, 32, 64)},
    **{f"{letter}{bits}": f"uint{bits}" for letter in ("u", "ui") for bits in (8, 16, 32)},
    **{f"{letter}{bits}": f"float{bits}" for letter in ("f", "fp") for bits in (16, 32, 64)},
}
"""The names of element types in jaxprs, HLO, MLIR and safetensors, in lower case, and the canonical
name of each. The numbers in the names are widths in bits."""

_WIDTHS = {"float": ("float32", "float64"), "int": ("int32", "int64")}
_NAME = re.compile(r"\s*(?:(?:torch|numpy|np|jax\.numpy|jnp|ml_dtypes)\.)?(\w+)\s*")


def dtype_of(given: object, known: Collection[str] = DTYPES) -> str:
    """Return the canonical name of an element type, given its name, a short name, or a dtype of
    numpy, JAX or torch.

    `known`: the allowed canonical names. Raises InputError for any other element type, and for
    `float` and `int`, because their widths differ between numpy and JAX.

    >>> dtype_of("bf16"), dtype_of("torch.float16"), dtype_of(np.dtype("int8"))
    ('bfloat16', 'float16', 'int8')
    """
    name = _name(given)
    if name in known:
        return name
    if name in _WIDTHS:
        raise InputError(
            "the element type must state its width: numpy, jax and torch differ on the default",
            argument="dtype",
            got=name,
            expected=one_of(_WIDTHS[name]),
        )
    shown = given if isinstance(given, str) and given else in_a_line(given)
    raise unknown("unknown element type", shown, known, "dtype")


def itemsize(dtype: object) -> int:
    """Return the number of bytes per element. Raises InputError for an unknown or packed dtype."""
    return SIZES[dtype_of(dtype, SIZES)]


def _name(given: object) -> str:
    """Return the name of a dtype, or "" if it is not a dtype."""
    if not isinstance(given, str) and is_a(given, TORCH_DTYPE):
        given = str(given)
    if isinstance(given, str):
        match = _NAME.fullmatch(given)
        name = match[1] if match else given
        lower = name.lower()
        return lower if lower in STORED else SHORT.get(lower, name)
    if given is bool or given is int or given is float:
        return given.__name__
    if isinstance(given, type):
        given = _of_class(given)
    return given.name if isinstance(given, np.dtype) and given.isnative else ""


def _of_class(given: type) -> object:
    """Return the dtype of a scalar class of numpy, ml_dtypes or JAX, or None for a class without a
    dtype, such as `np.floating`."""
    if not issubclass(given, np.generic):
        return getattr(given, "dtype", None)
    try:
        found = np.dtype(given)
    except TypeError:
        return None
    return found if found.type is given else None


def neutral(dtype: str, operator: str) -> float | int:
    """Return the neutral element of an operator: 0 for `sum`, the lowest value of the dtype for
    `max`, the highest for `min`.

    >>> neutral("int8", "max"), neutral("float32", "min"), neutral("float8_e4m3fn", "max")
    (-128, inf, -448)
    """
    if operator == "sum":
        return 0
    sign = -1 if operator == "max" else 1
    if is_floating(dtype):  # float8_e4m3fn has no infinity
        return sign * (448 if dtype == "float8_e4m3fn" else math.inf)
    if dtype == "bool":
        return int(operator == "min")
    ends = np.iinfo(dtype)
    return int(ends.min if operator == "max" else ends.max)


def is_floating(dtype: str) -> bool:
    """Return whether the elements are floating-point numbers, which have derivatives."""
    return "float" in dtype
