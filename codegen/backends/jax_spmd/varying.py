"""Whether jax can check by itself that results are alike where they are said to be."""

from __future__ import annotations

from collections.abc import Sequence

from shardwright.codegen.partition.local.steps import (
    CallFunction,
    Compute,
    LocalBody,
    LocalProgram,
    MoveValue,
)


def is_checked(program: LocalProgram) -> bool:
    """Return whether `check_vma` can see it: values that pass a loop or a permutation have types
    that jax does not follow."""
    every = (program.body, *program.functions)
    if any(isinstance(step, Compute) and step.bodies for body in every for step in body.steps):
        return False
    differ = [frozenset(program.values[v].layout.used) for v in program.body.arguments]
    results = zip(_follow(program.body, program, differ), program.body.results, strict=True)
    return all(found <= set(program.values[v].layout.used) for found, v in results)


def _follow(
    body: LocalBody, program: LocalProgram, arguments: Sequence[frozenset[str]]
) -> list[frozenset[str]]:
    """Return along which axes each result of a body differs, as jax finds it."""
    varying = dict(zip(body.arguments, arguments, strict=True))
    for step in body.steps:
        match step:
            case MoveValue():
                varying[step.result] = _moved(step, varying[step.operand])
            case CallFunction(number, operands, results):
                given = [varying[operand] for operand in operands]
                found = _follow(program.functions[number], program, given)
                varying.update(zip(results, found, strict=True))
            case Compute():
                given = [varying[operand] for operand in step.operands]
                found_by_all = _computed(step, frozenset().union(*given), program)
                varying.update(dict.fromkeys(step.results, found_by_all))
    return [varying[result] for result in body.results]


def _computed(step: Compute, found: frozenset[str], program: LocalProgram) -> frozenset[str]:
    """Return along which axes what an op makes differs, from those of its operands."""
    layout = program.values[step.results[0]].layout
    split = {*layout.used, *layout.partial}
    if step.formed:
        gathered = {a for m in step.moves if m.change.kind == "all_gather" for a in m.change.axes}
        return (found | split) - (gathered - split)
    return found | set(layout.used) if step.op.kind == "iota" else found


def _moved(step: MoveValue, before: frozenset[str]) -> frozenset[str]:
    axes = frozenset(step.change.axes)
    return before - axes if step.change.kind in ("all_gather", "all_reduce") else before | axes
