"""Casts to narrow floats in Triton's interpreter, rounded to nearest as on a GPU. Used in workers
only.

The interpreter (triton 3.7.1, 3.9.0) does not carry from the fraction into the exponent when
rounding to a float8, so 7.9 becomes 4 in float8_e4m3fn, and it truncates to bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from triton.runtime import interpreter

_KINDS = {"bf16": torch.bfloat16, "fp8e4nv": torch.float8_e4m3fn, "fp8e5": torch.float8_e5m2}
"""torch's name of a type, by Triton's name."""


@contextmanager
def rounded_to_nearest() -> Iterator[None]:
    """Make casts of float32 in this context round to nearest, ties to even; casts to a float8
    saturate, like the instructions `cvt.rn.satfinite` of NVIDIA GPUs."""
    with patch.object(interpreter, "_convert_float", _rounding(interpreter._convert_float)):
        yield


def _rounding(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return `original`, except for casts of float32 to a type in `_KINDS`."""

    def convert(data: Any, source: Any, target: Any, mode: Any) -> Any:
        kind = _KINDS.get(target.name)
        if kind is None or source.name != "fp32":
            return original(data, source, target, mode)
        values = torch.from_numpy(np.array(data))
        if kind.itemsize == 1:
            most = torch.finfo(kind).max
            values = values.clamp(-most, most)
        integers = {1: torch.uint8, 2: torch.uint16}[kind.itemsize]
        return values.to(kind).view(integers).numpy()

    return convert
