"""Numbers, dtypes and shapes as Python expressions."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from shardwright.ir.errors import InternalError

LONG = {"f": "float", "i": "int", "u": "uint", "c": "complex", "bf": "bfloat"}
WEAKEST = 2**31  # larger integers exceed int32, jax's type for Python integers


def dtype_name(short: str) -> str:
    """Return numpy's name for a dtype in the notation of jaxprs.

    >>> dtype_name("f32"), dtype_name("bool"), dtype_name("bf16"), dtype_name("f8_e5m2")
    ('float32', 'bool_', 'bfloat16', 'float8_e5m2')
    """
    if short == "bool":
        return "bool_"
    match = re.fullmatch(r"(bf|[fiuc])(\d+)(_\w+)?", short)
    return f"{LONG[match[1]]}{match[2]}{match[3] or ''}" if match else short


def dtype_text(short: str) -> str:
    return f"jnp.{dtype_name(short)}"


def number(value: object, dtype: str = "") -> str:
    """Format a number as the shortest Python expression with the same value in a dtype.

    >>> number(9.999999974752427e-07, "f32"), number(9.999999974752427e-07), number(3)
    ('1e-06', '9.999999974752427e-07', '3')
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "jnp.nan" if math.isnan(value) else ("jnp.inf" if value > 0 else "-jnp.inf")
    if dtype == "f32" and isinstance(value, float):
        short = repr(float(str(np.float32(value))))
        return short if np.float32(short) == np.float32(value) else repr(value)
    return repr(value)


def is_weak(value: object, dtype: str) -> bool:
    """Return whether a Python number keeps its value next to an array of this dtype."""
    if isinstance(value, bool):
        return dtype == "bool"
    if isinstance(value, int):
        return dtype[0] in "iu" and abs(value) < WEAKEST
    return isinstance(value, float) and dtype[0] in "fb"


def scalar(value: object, dtype: str) -> str:
    """Return the expression for an array of rank 0."""
    if isinstance(value, int) and abs(value) >= WEAKEST:
        return f"jnp.{dtype_name(dtype)}({value})"
    return f"{dtype_text(dtype)}({number(value, dtype)})"


def integers(values: object) -> str:
    """Format a tuple of integers, or of such tuples, as an expression.

    >>> integers((1, (2, 3))), integers((4,))
    ('(1, (2, 3))', '(4,)')
    """
    if isinstance(values, tuple):
        inside = ", ".join(map(integers, values))
        return f"({inside},)" if len(values) == 1 else f"({inside})"
    if values is None or isinstance(values, int):
        return str(values)
    raise InternalError(f"not integers: {values!r}")


def listed(items: Sequence[str]) -> str:
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
