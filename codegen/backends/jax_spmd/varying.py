"""Whether jax can check by itself that results are alike where they are said to be."""

from __future__ import annotations

from shardwright.codegen.partition.local.steps import Compute, LocalBody, LocalProgram, MoveValue


def is_checked(program: LocalProgram) -> bool:
    """Return whether `check_vma` can see it: values that pass a loop or a permutation have types
    that jax does not follow."""
    if any(isinstance(step, Compute) and step.bodies for step in program.body.steps):
        return False
    varying: dict[int, frozenset[str]] = {}
    _follow(program.body, program, varying)
    return all(
        varying[result] <= set(program.values[result].layout.used)
        for result in program.body.results
    )


def _follow(body: LocalBody, program: LocalProgram, varying: dict[int, frozenset[str]]) -> None:
    """Note along which axes each local value differs, as jax finds it."""
    for argument in body.arguments:
        varying[argument] = frozenset(program.values[argument].layout.used)
    for step in body.steps:
        if isinstance(step, MoveValue):
            varying[step.result] = _moved(step, varying[step.operand])
            continue
        found = frozenset().union(*(varying[operand] for operand in step.operands))
        layout = program.values[step.results[0]].layout
        if step.formed:
            found |= {*layout.used, *layout.partial}
            found -= {
                name
                for move in step.moves
                for name in move.change.axes
                if move.change.kind == "all_gather"
            } - {*layout.used, *layout.partial}
        elif step.op.kind == "iota":
            found |= set(layout.used)
        varying.update(dict.fromkeys(step.results, found))


def _moved(step: MoveValue, before: frozenset[str]) -> frozenset[str]:
    axes = frozenset(step.change.axes)
    return before - axes if step.change.kind in ("all_gather", "all_reduce") else before | axes
