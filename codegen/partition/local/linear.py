"""Through which ops terms of a sum pass: what is made of the terms are terms of what is made of
the sum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from shardwright.codegen.partition.local.assign import FactorAxes, Splits
from shardwright.codegen.partition.local.layout import LocalLayout
from shardwright.codegen.partition.local.ports import PORT
from shardwright.codegen.partition.local.steps import item_bytes
from shardwright.ir.program import Op, Value

TOGETHER = frozenset({"add", "add_any", "sub", "concatenate", PORT})
"""All operands are terms; one that is whole becomes terms of which all but one are zero."""

ALONE = frozenset(
    {
        *("neg", "broadcast_in_dim", "transpose", "reshape", "squeeze", "reduce_sum", "copy"),
        *("slice", "rev", "convert_element_type", "div", "name"),
    }
)
"""The first operand is terms."""

EITHER = frozenset({"mul", "dot_general"})
"""One operand is terms, the other whole."""


def with_terms(
    splits: Splits, split: FactorAxes, layouts: Sequence[LocalLayout], values: Sequence[Value]
) -> Iterator[FactorAxes]:
    """Yield a split with the terms that operands come in; `layouts` are those of the operands."""
    for carriers in _carriers(splits.op, values):
        terms = {
            name
            for place in carriers
            if layouts[place].operator == "sum"
            for name in layouts[place].partial
        }
        names = splits.axes.ordered(terms)
        if names:
            yield replace(splits.without(split, names), partial=names, carriers=carriers)


def _carriers(op: Op, values: Sequence[Value]) -> Iterator[tuple[int, ...]]:
    """Yield the operands of an op that may be terms, together."""
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
    """Return whether an op of terms is no coarser than one of their sum: a conversion to a wider
    float, a quotient of floats."""
    source, target = values[op.operands[0]].dtype, values[op.results[0]].dtype
    if op.kind == "convert_element_type":
        floats = source[0] in "fb" and target[0] == "f" and source != "bool"
        return floats and item_bytes(target) >= item_bytes(source)
    return op.kind != "div" or target[0] in "fb"
