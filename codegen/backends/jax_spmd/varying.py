"""Whether JAX itself can check that results are equal on all replicas."""

from __future__ import annotations

from collections.abc import Sequence

from shardwright.codegen.ops.table import kind_of
from shardwright.codegen.partition.local.steps import (
    CallFunction,
    Compute,
    LocalBody,
    LocalProgram,
    MoveValue,
)

FREE = ("slice", "replicated_to_unreduced", "exchange")
"""Layout changes that jax accepts of values that are equal along their axes."""


def is_checked(program: LocalProgram) -> bool:
    """Return whether `check_vma` can verify a program.

    It cannot if the program has loops or opaque calls, through which jax does not follow values, or
    if a collective gets a value that is equal along its axes, which jax rejects. After a direct
    exchange jax assumes that results differ along the axes, because each device selects its blocks;
    if the results are replicas, jax cannot verify that they are equal.
    """
    every = (program.body, *program.functions)
    steps = [step for body in every for step in body.steps if isinstance(step, Compute)]
    if any(step.bodies or kind_of(step.op.kind).group == "opaque" for step in steps):
        return False
    differ = [frozenset(program.values[v].layout.used) for v in program.body.arguments]
    follow = _Follow(program)
    results = zip(follow.body(program.body, differ), program.body.results, strict=True)
    fits = all(found <= set(program.values[v].layout.used) for found, v in results)
    return fits and follow.is_taken


class _Follow:
    """Follow the axes along which values differ. `is_taken`: whether jax accepts all collectives so
    far."""

    def __init__(self, program: LocalProgram) -> None:
        self.program = program
        self.is_taken = True
        # the number that fills each value known to be constant
        self.numbers: dict[int, object] = {}

    def body(self, body: LocalBody, arguments: Sequence[frozenset[str]]) -> list[frozenset[str]]:
        """Return the axes along which each result of a body differs, as jax infers them.
        `arguments`: the axes along which each argument differs."""
        varying = dict(zip(body.arguments, arguments, strict=True))
        for step in body.steps:
            match step:
                case MoveValue(change, operand, result):
                    if change.op not in FREE and not varying[operand] >= set(change.axes):
                        self.is_taken = False
                    varying[result] = _moved(step, varying[operand])
                    if operand in self.numbers and stays(change.op, self.numbers[operand]):
                        self.numbers[result], varying[result] = self.numbers[operand], frozenset()
                case CallFunction(number, operands, results):
                    given = [varying[operand] for operand in operands]
                    found = self.body(self.program.functions[number], given)
                    varying.update(zip(results, found, strict=True))
                case Compute():
                    self._note(step)
                    given = [varying[operand] for operand in step.operands]
                    kind = kind_of(step.op.kind)
                    apart = kind.is_bound and len(set(given)) > 1
                    if apart or (kind.loops and any(given)):
                        self.is_taken = False
                    own = frozenset().union(*given)
                    own = _computed(step, own, self.program)
                    varying.update(dict.fromkeys(step.results, own))
        return [varying[result] for result in body.results]

    def _note(self, step: Compute) -> None:
        if step.op.kind == "constant" and "value" in dict(step.op.params):
            self.numbers[step.results[0]] = step.op.param("value")
        elif step.op.kind == "broadcast_in_dim" and step.operands[0] in self.numbers:
            self.numbers[step.results[0]] = self.numbers[step.operands[0]]


def stays(op: str, value: object) -> bool:
    """Return whether a value that is filled with one number still is after a layout change: after a
    slice, and as terms of a sum if the number is zero."""
    return op == "slice" or (op == "replicated_to_unreduced" and value == 0)


def _computed(step: Compute, found: frozenset[str], program: LocalProgram) -> frozenset[str]:
    layout = program.values[step.results[0]].layout
    split = {*layout.used, *layout.partial}
    if step.formed:
        gathered = {a for m in step.moves if m.change.op == "all_gather" for a in m.change.axes}
        return (found | split) - (gathered - split)
    return found | set(layout.used) if step.op.kind == "iota" else found


def _moved(step: MoveValue, before: frozenset[str]) -> frozenset[str]:
    axes = frozenset(step.change.axes)
    return before - axes if step.change.op in ("all_gather", "all_reduce") else before | axes
