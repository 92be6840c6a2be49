"""The rows for all kinds of ops, collected from the files of their families."""

from __future__ import annotations

import functools

from shardwright.codegen.ops import (
    calls,
    collectives,
    contractions,
    elementwise,
    matrices,
    random_ops,
    reductions,
    rows,
    scans,
    shapes,
    slices,
    sorts,
    windows,
)
from shardwright.codegen.ops.forms.form import LocalForm, OpTensors
from shardwright.codegen.ops.kind import OpKind
from shardwright.ir.program import Op

KINDS: dict[str, OpKind] = {
    kind.name: kind
    for family in (
        *(calls, collectives, contractions, elementwise, matrices, random_ops, reductions),
        *(rows, scans, shapes, slices, sorts, windows),
    )
    for kind in family.KINDS
}
ELEMENTWISE = frozenset(name for name, kind in KINDS.items() if kind.is_elementwise)
"""All elementwise ops: operands and results have one shape."""
VIEWS = frozenset(name for name, kind in KINDS.items() if kind.group == "view")
"""Ops that only rearrange or repeat the elements of their operand."""
POINTWISE = ELEMENTWISE | VIEWS
"""Ops that compute each element of the result from one element of each operand."""


@functools.cache
def kind_of(name: str) -> OpKind:
    """Return the row for a kind of op, or an empty row if nothing is known about it."""
    return KINDS.get(name) or OpKind(name)


def word_of(name: str) -> str:
    """Return the word for a kind of op in names of values, such as `sum` for `reduce_sum`."""
    return (kind_of(name).stem or name.removeprefix("reduce_")).replace("-", "_")


def form_of(tensors: OpTensors) -> LocalForm | None:
    """Return the local form of an op, or None. An op with a rule from the user keeps that rule.
    Empty tensors have no form, because collectives do not accept them."""
    make = kind_of(tensors.op.kind).form
    is_empty = any(0 in shape for shape in (*tensors.shapes[:1], *tensors.shapes[tensors.result :]))
    return None if make is None or is_empty or tensors.op.rule is not None else make(tensors)


def imports_of(op: Op) -> str:
    """Return the import that the text of an op needs in addition to `jax`, `jnp` and `lax`, or
    ""."""
    needed = kind_of(op.kind).imports
    return needed if isinstance(needed, str) else needed(op)


def by_symbol(symbol: str) -> str:
    """Return the kind of op for a Python operator."""
    return next(name for name, kind in KINDS.items() if kind.symbol == symbol)
