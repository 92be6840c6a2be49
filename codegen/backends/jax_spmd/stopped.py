"""Values of a body through which no gradient flows."""

from __future__ import annotations

from collections import defaultdict

from shardwright.codegen.partition.local.steps import (
    Compute,
    LocalBody,
    LocalProgram,
    MoveValue,
    Step,
    taken,
)

FLOATS = ("f", "bf", "c")
Uses = dict[int, list[Step | None]]


def uses_of(body: LocalBody) -> Uses:
    """Return the steps that use each local value of a body. None stands for the body's results."""
    found: Uses = defaultdict(list)
    for step in body.steps:
        for local in taken(step):
            found[local].append(step)
    for result in body.results:
        found[result].append(None)
    return found


def stopped(program: LocalProgram, body: LocalBody, uses: Uses) -> set[int]:
    """Return the local values through which no gradient flows: integers, and values whose uses all
    end in `stop_gradient` or in an op without a gradient, such as a comparison."""
    found: set[int] = set()

    def ends(use: Step | None) -> bool:
        match use:
            case MoveValue(result=result):
                return result in found
            case Compute(bodies=()):
                return use.op.kind == "stop_gradient" or found.issuperset(use.results)
        return False

    for step in reversed(body.steps):
        for local in (step.result,) if isinstance(step, MoveValue) else step.results:
            if not program.of(local).dtype.startswith(FLOATS) or all(map(ends, uses[local])):
                found.add(local)
    return found
