"""Linear ops, through which partial sums pass: their results for partial operands are partial
results."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from shardwright.codegen.ops.layout import LocalLayout
from shardwright.codegen.ops.table import kind_of
from shardwright.codegen.partition.local.assign import FactorAxes, Splits
from shardwright.codegen.partition.local.ports import PORT
from shardwright.ir.program import Op, Value

FLOATS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}
"""The number of bits of a float's exponent and mantissa, by dtype."""


def with_terms(
    splits: Splits, split: FactorAxes, layouts: Sequence[LocalLayout], values: Sequence[Value]
) -> Iterator[FactorAxes]:
    """Yield, for each set of operands that may be partial together, a split that takes them as
    partial sums. `layouts`: the layouts of the operands."""
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
    """Yield the sets of an op's operands that may be partial together. Yield nothing for ops that
    are not linear, or that would lose precision. If operands must be partial together, those that
    are not become terms: their value on one device, zero on the others."""
    if not op.operands or not _adds_exactly(op, values):
        return
    if op.kind == PORT and op.param("of") == "manual":
        return
    match "together" if op.kind == PORT else kind_of(op.kind).terms:
        case "together":
            yield tuple(range(len(op.operands)))
        case "first":
            yield (0,)
        case "either":
            yield from ((0,), (1,))
        case "cases":
            yield tuple(range(1, len(op.operands)))


def _adds_exactly(op: Op, values: Sequence[Value]) -> bool:
    """Return whether applying an op to partial sums loses no precision compared to applying it to
    their sum: a conversion must preserve all values, and a quotient must be of floats."""
    source, target = values[op.operands[0]].dtype, values[op.results[0]].dtype
    if op.kind == "convert_element_type":
        here, there = _bits(source), _bits(target)
        return all(0 < old <= new for old, new in zip(here, there, strict=True))
    return op.kind != "div" or target[0] in "fb"


def _bits(dtype: str) -> tuple[int, int]:
    """Return the number of bits of a float's exponent and mantissa, or zeros for another dtype.

    >>> _bits("bf16"), _bits("float8_e5m2"), _bits("i32")
    ((8, 7), (5, 2), (0, 0))
    """
    match = re.match(r"f(?:loat)?\d_e(\d)m(\d)", dtype)
    return (int(match[1]), int(match[2])) if match else FLOATS.get(dtype, (0, 0))
