"""Make Triton's interpreter round casts to narrow floats to nearest, as GPUs do. Imported only by
workers.

When the interpreter (triton 3.7.1, 3.9.0) rounds to a float8, it does not carry from the fraction
into the exponent, so 7.9 becomes 4 in float8_e4m3fn. It truncates casts to bfloat16.
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
"""The torch dtype of each narrow float, by its name in Triton."""


@contextmanager
def rounded_to_nearest() -> Iterator[None]:
    """Round casts of float32, in this context, to nearest, ties to even. Casts to a float8
    saturate, like the instructions `cvt.rn.satfinite` of NVIDIA GPUs."""
    with patch.object(interpreter, "_convert_float", _rounding(interpreter._convert_float)):
        yield


def _rounding(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that rounds casts of float32 to a type in `_KINDS`, and passes other casts
    to `original`."""

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
