"""The expression of an op, looked up in the tables."""

from __future__ import annotations

from shardwright.codegen.ops.callbacks import pure_callback
from shardwright.codegen.ops.collectives import OWN
from shardwright.codegen.ops.contractions import CONTRACTIONS
from shardwright.codegen.ops.elementwise import FUNCTIONS, INFIX
from shardwright.codegen.ops.expressions import TABLE
from shardwright.codegen.ops.form_texts.boxes import plain_rows
from shardwright.codegen.ops.form_texts.shifts import plain_shift
from shardwright.codegen.ops.form_texts.table import FORM_TEXTS
from shardwright.codegen.ops.kinds import OPAQUE
from shardwright.codegen.ops.matrices import MATRIX_OPS
from shardwright.codegen.ops.random_ops import RANDOM
from shardwright.codegen.ops.text import Expression, OpText
from shardwright.ir.errors import InputError
from shardwright.ir.program import CONTROL, Body, Op, ops_of

FORMED = {"shift": plain_shift, "take_rows": plain_rows}
"""The expressions of ops that passes insert and no jaxpr contains, along dimensions that are not
split."""

HOST = {"pure_callback": pure_callback}

TABLES = (TABLE, CONTRACTIONS, OWN, FORMED, RANDOM, MATRIX_OPS, HOST)

REFUSED = {
    "io_callback": "a function with effects would run once on every device",
}
"""Ops that users write but modules cannot contain, each with the reason."""


def check_ops(body: Body) -> None:
    """Raise InputError, with the line of the user's code, for an op that modules do not support.

    This check runs before planning.
    """
    known = {*INFIX, *FUNCTIONS, *FORM_TEXTS, *CONTROL, "cond", "constant", "constrain", *OPAQUE}
    for op in ops_of(body):
        if op.kind == "pure_callback" and not op.param("callback"):
            raise InputError(
                "a function under jax.pure_callback must be importable by name and take arrays, "
                "not pytrees",
                argument="fn",
                got=f"a function that cannot be imported, or that takes pytrees{_at(op)}",
                expected="a top-level function of a module that takes arrays by position",
            )
        if op.kind not in known and not any(op.kind in table for table in TABLES):
            raise _unknown(op)


def expression(text: OpText) -> Expression:
    """Return the expression of an op.

    Raise InputError, with the line of the user's code, if the kind of op is not supported.
    """
    kind = text.op.kind
    if kind in INFIX:
        return f"{text.given[0]} {INFIX[kind]} {text.given[1]}"
    make = next((table[kind] for table in TABLES if kind in table), None)
    if make is not None:
        return make(text)
    if kind in FUNCTIONS:
        return FUNCTIONS[kind], list(text.given)
    raise _unknown(text.op)


def _unknown(op: Op) -> InputError:
    return InputError(
        REFUSED.get(op.kind, "emitted programs do not support this op"),
        argument="fn",
        got=f"{op.kind}{_at(op)}",
        expected="an op listed in docs/programs.md",
    )


def _at(op: Op) -> str:
    return f", {op.line}" if op.line else ""
