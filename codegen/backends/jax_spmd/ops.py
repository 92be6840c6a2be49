"""The expression of an op, from the tables."""

from __future__ import annotations

from shardwright.codegen.backends.jax_spmd.collectives import OWN
from shardwright.codegen.backends.jax_spmd.contractions import CONTRACTIONS
from shardwright.codegen.backends.jax_spmd.expressions import (
    FUNCTIONS,
    INFIX,
    TABLE,
    Expression,
    OpText,
)
from shardwright.codegen.backends.jax_spmd.forms.shifts import plain_shift
from shardwright.codegen.backends.jax_spmd.matrices import MATRIX_OPS
from shardwright.codegen.backends.jax_spmd.random_ops import RANDOM
from shardwright.ir.errors import InputError

FORMED = {"shift": plain_shift}
"""Ops that stand in no jaxpr, where nothing is split along their dimension."""

TABLES = (TABLE, CONTRACTIONS, OWN, FORMED, RANDOM, MATRIX_OPS)


def expression(text: OpText) -> Expression:
    """Return the expression of an op.

    Raises InputError, with the user's line, for a kind that is in no table.
    """
    kind = text.op.kind
    if kind in INFIX:
        return f"{text.given[0]} {INFIX[kind]} {text.given[1]}"
    make = next((table[kind] for table in TABLES if kind in table), None)
    if make is not None:
        return make(text)
    if kind in FUNCTIONS:
        return FUNCTIONS[kind], list(text.given)
    raise InputError(
        "every op of a program that is emitted must be one that modules can have",
        argument="fn",
        got=f"{kind}{f', {text.op.line}' if text.op.line else ''}",
        expected="an op that docs/programs.md lists",
    )
