"""The reduction of a block's terms: sum, maximum or minimum.

Terms are reduced in the order of their numbers on every device, so that replicas are bitwise equal.
Floats narrower than 32 bits are reduced as float32 and rounded once.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardwright.codegen.text.python_text import neutral_text
from shardwright.ir.dtypes import is_floating
from shardwright.ir.exchange import Exchange

UNROLLED = 8
"""Most terms loaded at once: each needs registers."""

_TYPES = {
    "bool": "uint8",
    "float8_e4m3fn": "float8e4nv",
    "float8_e5m2": "float8e5",
}

_DOES = {"sum": "Add up", "max": "Find the maximum of", "min": "Find the minimum of"}


@dataclass(frozen=True)
class ReducedText:
    """The terms of a reduction, as its template prints them.

    `does`: their reduction, in words; `unrolled`: whether all are loaded at once; `element` and
    `total`: Triton's types of shards and of sums; `identity`: the value that leaves every other as
    it is; `adds`: whether terms are added up; else `combine` does it, and treats NaNs like `nan`.
    """

    terms: int
    does: str
    unrolled: bool
    element: str
    total: str
    identity: str
    adds: bool
    combine: str
    nan: str

    @staticmethod
    def of(exchange: Exchange, dtype: str) -> ReducedText:
        """Return the text for an exchange of elements of a dtype."""
        operator, count = exchange.operator or "sum", exchange.terms
        element = f"tl.{_TYPES.get(dtype, dtype)}"
        is_widened = is_floating(dtype) and dtype not in ("float32", "float64")
        return ReducedText(
            terms=count,
            does=_DOES[operator],
            unrolled=count <= UNROLLED,
            element=element,
            total="tl.float32" if is_widened else element,
            identity=neutral_text(dtype, operator),
            adds=operator == "sum",
            combine=f"tl.{operator}imum",
            nan=f"tl.PropagateNan.{'ALL' if is_floating(dtype) else 'NONE'}",
        )
