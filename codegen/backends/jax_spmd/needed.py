"""Find the op for which a value is moved."""

from __future__ import annotations

from collections import defaultdict

from shardwright.codegen.partition.local.steps import (
    CallFunction,
    Compute,
    LocalProgram,
    Step,
    made,
    taken,
)
from shardwright.codegen.partition.local.user_calls import bodies_of

VIEWS = ("broadcast_in_dim", "convert_element_type", "copy", "reshape", "squeeze")
"""Ops that often have no statement of their own."""


class Users:
    """The steps that use each local value, and the values as which calls pass values on."""

    def __init__(self, program: LocalProgram) -> None:
        self.program = program
        self.steps: dict[int, list[Step]] = defaultdict(list)
        self.passed: dict[int, list[int]] = defaultdict(list)
        for body in bodies_of(program):
            for step in body.steps:
                self._read(step)

    def _read(self, step: Step) -> None:
        for value in taken(step):
            self.steps[value].append(step)
        if isinstance(step, CallFunction):
            body = self.program.functions[step.function]
            ends = (*step.operands, *body.results), (*body.arguments, *step.results)
            for value, other in zip(*ends, strict=True):
                self.passed[value].append(other)

    def needing(self, local: int) -> Compute | None:
        """Return the first step that computes with a value, after views, moves and calls of
        functions, or None if the program only returns the value."""
        left = [local]
        for value in left:
            for step in self.steps[value]:
                if isinstance(step, Compute) and not _is_view(self.program, step):
                    return step
            own = (v for s in self.steps[value] if not isinstance(s, CallFunction) for v in made(s))
            left += (each for each in (*own, *self.passed[value]) if each not in left)
        return None


def _is_view(program: LocalProgram, step: Compute) -> bool:
    sizes = {program.of(v).size for v in (*step.operands[:1], *step.results)}
    return step.op.kind in VIEWS or (step.op.kind.startswith("reduce_") and len(sizes) == 1)
