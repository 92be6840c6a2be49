"""Merge padding into the windows that follow it. The padded value would often have one row too many
or too few to be split evenly, as in the gradient of a mean over windows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from shardwright.codegen.ops.fills import neutral
from shardwright.codegen.ops.forms.shifts import padded_dims
from shardwright.codegen.ops.forms.windows import pairs_of
from shardwright.codegen.ops.table import kind_of
from shardwright.codegen.partition.local.in_use import in_use
from shardwright.ir.program import Body, Op, Param, Program


def with_padding(program: Program) -> Program:
    """Return a program in which ops over windows include the padding of their operand."""
    return replace(program, body=_rewritten(program.body))


def _rewritten(body: Body) -> Body:
    made_by = {result: op for op in body.ops for result in op.results}
    ops = []
    for op in body.ops:
        inner = tuple(map(_rewritten, op.bodies))
        ops.append(_padding(op, made_by) or (replace(op, bodies=inner) if inner else op))
    return replace(body, ops=tuple(in_use(body, ops)))


def _padding(op: Op, made_by: Mapping[int, Op]) -> Op | None:
    """Merge a pad into the op over windows that uses it, and return that op. Return None for other
    ops, or if the padding is negative or cannot be expressed."""
    kind = kind_of(op.kind)
    pad, name = made_by.get(op.operands[0]) if kind.dilation else None, kind.dilation
    if pad is None or pad.kind != "pad":
        return None
    if _number(pad, made_by) != neutral(kind.fill_of(op, 0), "f32"):
        return None
    convolves = "lhs_spec" in dict(op.params)
    places = op.integers("lhs_spec")[2:] if convolves else range(len(op.integers(name)))
    dilation, padding = list(op.integers(name)), pairs_of(op)
    for dim, (low, high, inner) in padded_dims(pad):
        if dim not in places:
            return None
        at = places.index(dim)
        if min(low, high, *padding[at]) < 0 or dilation[at] > 1:
            return None
        padding[at] = padding[at][0] + low, padding[at][1] + high
        dilation[at] = inner + 1
    changed: dict[str, Param] = {"padding": tuple(padding), name: tuple(dilation)}
    params = tuple(sorted({**dict(op.params), **changed}.items()))
    return replace(op, operands=(pad.operands[0], *op.operands[1:]), params=params)


def _number(pad: Op, made_by: Mapping[int, Op]) -> object:
    """Return the number that a pad inserts, or None if it is unknown."""
    made = made_by.get(pad.operands[1])
    while made is not None and made.kind == "convert_element_type":
        made = made_by.get(made.operands[0])
    return None if made is None else dict(made.params).get("value")
