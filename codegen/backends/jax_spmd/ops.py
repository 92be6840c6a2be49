"""The expression of an op, and the ops that modules support."""

from __future__ import annotations

from shardwright.codegen.ops.calls import CALLBACK
from shardwright.codegen.ops.table import kind_of
from shardwright.codegen.ops.text import Expression, OpText
from shardwright.ir.errors import InputError
from shardwright.ir.program import Body, Op, ops_of

WRITTEN = frozenset({"constant", "constrain"})
"""Ops that need no text of their own: arrays are written as names, stated shardings as layout
changes."""


def check_ops(body: Body) -> None:
    """Raise InputError, with the line of the user's code, for an op that modules do not support.

    This check runs before planning.
    """
    for op in ops_of(body):
        if op.kind == CALLBACK and not op.param("callback"):
            raise InputError(
                "a function under jax.pure_callback must be importable by name and take arrays, "
                "not pytrees",
                argument="fn",
                got=f"a function that cannot be imported, or that takes pytrees{_at(op)}",
                expected="a top-level function of a module that takes arrays by position",
            )
        kind = kind_of(op.kind)
        has_body = kind.group in ("control", "opaque")
        if not has_body and kind.text is None and op.kind not in WRITTEN:
            raise _unknown(op)


def expression(text: OpText) -> Expression:
    """Return the expression of an op.

    Raise InputError, with the line of the user's code, if the kind of op is not supported.
    """
    make = kind_of(text.op.kind).text
    if make is None:
        raise _unknown(text.op)
    return make(text)


def _unknown(op: Op) -> InputError:
    return InputError(
        kind_of(op.kind).refused or "emitted programs do not support this op",
        argument="fn",
        got=f"{op.kind}{_at(op)}",
        expected="an op listed in docs/programs.md",
    )


def _at(op: Op) -> str:
    return f", {op.line}" if op.line else ""
