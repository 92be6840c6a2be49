"""Check that propagation supports an op that was parsed from text."""

from __future__ import annotations

import math
from collections.abc import Sequence

from shardwright.codegen.ops.table import ELEMENTWISE
from shardwright.codegen.propagate.rules import is_known, rule_of
from shardwright.ir.program import Op, Program, Value, ops_of
from shardwright.ir.program_check import check_rule
from shardwright.ir.program_control import need

SAME_SIZE = frozenset({"reshape", "squeeze", "transpose"})


def unknown_kinds(program: Program) -> tuple[str, ...]:
    """Return one warning per kind of op without a rule."""
    kinds = (op.kind for op in ops_of(program.body) if op.rule is None and not is_known(op.kind))
    return tuple(
        f"{kind} has no rule: its operands are replicated" for kind in dict.fromkeys(kinds)
    )


def check_propagated(op: Op, values: Sequence[Value]) -> None:
    """Raise InternalError unless an op has the parameters and shapes that its rule needs."""
    operands, results = (tuple(values[v].shape for v in side) for side in (op.operands, op.results))
    if op.kind in ELEMENTWISE and op.rule is None:
        need(len(results) == 1, f"{op.kind} must have one result")
        fitting = all(shape in (results[0], ()) for shape in operands)
        need(
            bool(operands) and fitting,
            f"the operands of {op.kind} must have the shape of its result",
        )
    if op.kind in SAME_SIZE and op.rule is None:
        need(len(operands) == len(results) == 1, f"{op.kind} must have one operand and one result")
        same = math.prod(operands[0]) == math.prod(results[0])
        need(same, f"{op.kind} must keep the number of elements")
    try:
        rule = rule_of(op, values)
    except (LookupError, ValueError, TypeError, ZeroDivisionError):
        need(False, f"the parameters and shapes of {op.kind} must fit its sharding rule")
        return
    if rule is not None:
        check_rule(rule, list(operands), list(results), op.kind)
