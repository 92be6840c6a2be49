"""The text of the reduction of a block's terms: a sum, maximum or minimum.

Every device reduces terms in the order of their numbers, so replicas are bitwise equal. Floats
narrower than 32 bits are reduced as float32 and rounded once.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardwright.codegen.text.python_text import neutral_text
from shardwright.ir.dtypes import is_floating
from shardwright.ir.exchange import Exchange

UNROLLED = 8
"""The most terms that a program loads at once: each takes registers."""

_TYPES = {
    "bool": "uint8",
    "float8_e4m3fn": "float8e4nv",
    "float8_e5m2": "float8e5",
}

_DOES = {"sum": "Add up", "max": "Find the maximum of", "min": "Find the minimum of"}


@dataclass(frozen=True)
class ReducedText:
    """The context of a reducing kernel's template.

    `terms`: the number of terms of a value; `does`: the verb of the reduction, for a comment;
    `unrolled`: whether a program loads all terms at once; `element`, `total`: the Triton types of
    elements in shards and during the reduction; `identity`: the operator's neutral element; `adds`:
    whether the operator is a sum; `combine`: if not, the Triton function for it, and `nan`: that
    function's argument for NaNs.
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
        """Return the context for an exchange whose elements have this dtype."""
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
