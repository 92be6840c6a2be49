"""Ops on padded ends: the dimensions along which they read rows there, and their parameters for
padded shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from shardwright.codegen.ops.build import Shape
from shardwright.codegen.ops.forms.shifts import padded_dims
from shardwright.codegen.ops.kind import NONE, Dims
from shardwright.codegen.ops.table import kind_of
from shardwright.ir.program import Op, Param

FILLED = ("FILL_OR_DROP",)
"""Modes of gathers in which an index out of range reads no row."""


def read_dims(op: Op, place: int) -> Dims:
    """Return the dimensions of operand `place` along which a pad takes rows from beyond the end, or
    a cumulative op accumulates rows."""
    if kind_of(op.kind).group == "cumulative":
        return frozenset(op.integers("axis"))
    if op.kind == "pad" and place == 0:
        return frozenset(dim for dim, (_, high, inner) in padded_dims(op) if high > 0 or inner)
    return NONE


def indexed_dims(op: Op) -> tuple[int, ...]:
    """Return the dimensions of the first operand of a gather or scatter to which indices refer, or
    () for other ops."""
    name = kind_of(op.kind).indexed
    return op.integers(name) if name else ()


def extended(op: Op, before: Sequence[Shape], after: Sequence[Shape]) -> Op | None:
    """Return an op with the parameters for tensors of other shapes, or None if no parameters
    express it. `before`, `after`: the shapes of its tensors, operands first."""
    extend = kind_of(op.kind).extend
    changed: Mapping[str, Param] | None = {} if extend is None else extend(op, before, after)
    return None if changed is None else with_params(op, changed)


def with_params(op: Op, changed: Mapping[str, Param]) -> Op:
    return replace(op, params=tuple(sorted({**dict(op.params), **changed}.items())))
