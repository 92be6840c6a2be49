"""Convert the dtypes and numbers of jaxprs to the notation of programs."""

from __future__ import annotations

import functools
import re
from typing import Any

SHORT = {"bool": "bool", "bfloat16": "bf16", "int": "i", "uint": "u", "float": "f", "complex": "c"}
KEY_BYTES = {"key<fry>": 8, "key<rbg>": 16, "key<urbg>": 16}
"""Bytes of a random key, by kind."""


@functools.cache
def dtype_of(dtype: Any) -> str:
    """Return a dtype in the notation of jaxprs: f32, bf16, i32, bool, key<fry>."""
    name = str(dtype)
    match = re.fullmatch(r"(uint|int|float|complex)(\d+)", name)
    return SHORT.get(name) or (f"{SHORT[match[1]]}{match[2]}" if match else name)


def plain(value: Any) -> bool | int | float | str:
    """Return a scalar as a Python bool, int or float, and any other value as a string."""
    item = getattr(value, "item", lambda: value)()
    for kind in (bool, int, float):
        if isinstance(item, kind):
            return kind(item)
    return str(item)
