"""The rule of an op: its own, or that of its kind. An op without a rule stops propagation: the
shardings of its tensors stay as they are, and tracing warns."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from shardwright.codegen.ops.build import Shapes
from shardwright.codegen.ops.kind import MakeRule
from shardwright.codegen.ops.table import kind_of
from shardwright.ir.program import Op, Rule, Value


def is_known(kind: str) -> bool:
    return kind_of(kind).rule is not None or kind_of(kind).group in ("constant", "control")


def rule_of(op: Op, values: Sequence[Value]) -> Rule | None:
    """Return the rule of an op: the rule that it states itself, or that of its kind. Return None if
    no sharding propagates through the op."""
    if op.rule is not None:
        return op.rule
    make = kind_of(op.kind).rule
    if make is None:
        return None
    operands = tuple(values[operand].shape for operand in op.operands)
    results = tuple(values[result].shape for result in op.results)
    return _made(make, op.kind, op.params, operands, results)


@functools.cache
def _made(
    make: MakeRule,
    kind: str,
    params: tuple[tuple[str, object], ...],
    operands: Shapes,
    results: Shapes,
) -> Rule:
    """Return the rule that `make` returns for an op. Equal ops share one rule object, so that
    visits can be cached."""
    return make(Op(kind, (), (), params), operands, results)  # type: ignore[arg-type]
