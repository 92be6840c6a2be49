"""The element types a tensor may have, and their sizes in bytes."""

from __future__ import annotations

from shardwright.ir.errors import InputError, one_of

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


def itemsize(dtype: object) -> int:
    """Return bytes an element of `dtype` takes; an unknown name is an InputError."""
    if isinstance(dtype, str) and dtype in DTYPES:
        return DTYPES[dtype]
    raise InputError(
        "the element type must be known",
        argument="dtype",
        got=dtype if isinstance(dtype, str) and dtype else repr(dtype),
        expected=one_of(DTYPES),
    )


def is_floating(dtype: str) -> bool:
    """Return whether elements are floating-point numbers, so that functions of them have
    derivatives."""
    return "float" in dtype
