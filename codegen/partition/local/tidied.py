"""Tidying: fewer or smaller steps for the same bits, before layers become functions.

Two slices of one dimension become one. A mask moves from the result of a broadcast or reshape to
its operand, because later ops broadcast the smaller operand themselves.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from shardwright.codegen.partition.local.steps import (
    Compute,
    LocalBody,
    LocalProgram,
    LocalValue,
    MoveValue,
    Step,
    made,
    taken,
)

VIEWS = ("broadcast_in_dim", "reshape", "squeeze")


def tidied(program: LocalProgram) -> LocalProgram:
    """Return a program that computes the same bits with fewer or smaller steps."""
    values = list(program.values)
    body = _tidied(program.body, values)
    return replace(program, body=body, values=tuple(values))


def _tidied(body: LocalBody, values: list[LocalValue]) -> LocalBody:
    """Return a body with fewer or smaller steps, and append new local values to `values`."""
    uses = Counter(v for step in body.steps for v in taken(step))
    uses.update(body.results)
    steps: list[Step | None] = []
    makers: dict[int, int] = {}  # the index of the step that produces each value
    left = [*reversed(body.steps)]
    while left:
        step = left.pop()
        if isinstance(step, Compute):
            step = replace(step, bodies=tuple(_tidied(each, values) for each in step.bodies))
        elif isinstance(step, MoveValue) and step.operand in makers and uses[step.operand] == 1:
            at = makers[step.operand]
            before = steps[at]
            if found := _joined(before, step) or _masked(before, step, values):
                steps[at] = None
                uses.update(v for each in found for v in made(each) if v not in uses)
                left += reversed(found)
                continue
        makers.update(dict.fromkeys(made(step), len(steps)))
        steps.append(step)
    return replace(body, steps=tuple(filter(None, steps)))


def _joined(before: Step | None, step: MoveValue) -> tuple[Step, ...]:
    """Return, as a tuple of one, the slice that replaces two slices of one dimension, or () for
    other steps."""
    if not isinstance(before, MoveValue) or before.change.dims != step.change.dims:
        return ()
    if before.change.op != "slice" or step.change.op != "slice":
        return ()
    change = step.change._replace(axes=(*before.change.axes, *step.change.axes))
    return (replace(step, change=change, operand=before.operand),)


def _masked(before: Step | None, step: MoveValue, values: list[LocalValue]) -> tuple[Step, ...]:
    """Return the steps that mask the operand of a broadcast or reshape instead of its result, or ()
    for other steps."""
    if not isinstance(before, Compute) or before.op.kind not in VIEWS or before.formed:
        return ()
    (operand,) = before.operands
    own = values[operand]
    is_alike = own.layout.partial == values[step.operand].layout.partial
    if step.change.op != "replicated_to_unreduced" or not is_alike:
        return ()
    layout = replace(own.layout, partial=step.change.after.partial)
    values.append(LocalValue(own.value, layout))
    change, result = step.change._replace(after=layout), len(values) - 1
    mask = replace(step, change=change, operand=operand, result=result)
    return mask, replace(before, operands=(result,), results=(step.result,))
