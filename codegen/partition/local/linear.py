"""Linear ops, which pass partial sums through: applied to partial operands, they give partial
results."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from shardwright.codegen.partition.local.assign import FactorAxes, Splits
from shardwright.codegen.partition.local.layout import LocalLayout
from shardwright.codegen.partition.local.ports import PORT
from shardwright.ir.program import Op, Value

TOGETHER = frozenset({"add", "add_any", "sub", "concatenate", PORT})
"""All operands are partial sums; a whole operand becomes terms that are zero on all devices but
one."""

ALONE = frozenset(
    {
        *("neg", "broadcast_in_dim", "transpose", "reshape", "squeeze", "reduce_sum", "copy"),
        *("slice", "rev", "take_rows", "convert_element_type", "div", "name"),
    }
)
"""The first operand is a partial sum."""

EITHER = frozenset({"mul", "dot_general", "ragged_dot_general"})
"""One operand is a partial sum, the other is whole."""

FLOATS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}
"""Bits of the exponent and of the mantissa."""


def with_terms(
    splits: Splits, split: FactorAxes, layouts: Sequence[LocalLayout], values: Sequence[Value]
) -> Iterator[FactorAxes]:
    """Yield a split that accepts partial operands; `layouts` are those of the operands."""
    for carriers in carriers_of(splits.op, values):
        terms = {
            name
            for place in carriers
            if layouts[place].operator == "sum"
            for name in layouts[place].partial
        }
        names = splits.axes.ordered(terms)
        if names:
            yield replace(splits.without(split, names), partial=names, carriers=carriers)


def carriers_of(op: Op, values: Sequence[Value]) -> Iterator[tuple[int, ...]]:
    """Yield sets of operands of an op that may be partial together."""
    if not op.operands or not _adds_exactly(op, values):
        return
    if op.kind == PORT and op.param("of") == "manual":
        return
    if op.kind in TOGETHER:
        yield tuple(range(len(op.operands)))
    elif op.kind in ALONE:
        yield (0,)
    elif op.kind in EITHER:
        yield from ((0,), (1,))
    elif op.kind == "select_n":
        yield tuple(range(1, len(op.operands)))


def _adds_exactly(op: Op, values: Sequence[Value]) -> bool:
    """Return whether an op is as exact on partial sums as on their sum: a conversion to a float
    type that has all values of the old one, or a quotient of floats."""
    source, target = values[op.operands[0]].dtype, values[op.results[0]].dtype
    if op.kind == "convert_element_type":
        here, there = _bits(source), _bits(target)
        return all(0 < old <= new for old, new in zip(here, there, strict=True))
    return op.kind != "div" or target[0] in "fb"


def _bits(dtype: str) -> tuple[int, int]:
    """Return the bits of the exponent and mantissa of a float; zeros for another dtype.

    >>> _bits("bf16"), _bits("float8_e5m2"), _bits("i32")
    ((8, 7), (5, 2), (0, 0))
    """
    match = re.match(r"f(?:loat)?\d_e(\d)m(\d)", dtype)
    return (int(match[1]), int(match[2])) if match else FLOATS.get(dtype, (0, 0))
