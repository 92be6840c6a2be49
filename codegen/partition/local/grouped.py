"""The order of the steps after a backward pass, such as an optimizer's: leaf by leaf.

An optimizer maps over trees of arrays, one op at a time. Ordered by results instead, all steps of a
leaf are consecutive, so the steps of a layer become one function. Only steps after the last matmul,
gather or loop are reordered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from shardwright.codegen.ops.table import POINTWISE
from shardwright.codegen.partition.local.steps import (
    Compute,
    LocalProgram,
    MoveValue,
    Step,
    made,
    taken,
)

MOVABLE = POINTWISE | {"constant", "reduce_sum", "reduce_max", "reduce_min"}


def grouped(program: LocalProgram) -> LocalProgram:
    """Return a program whose last steps, if they are elementwise, reductions or layout changes, are
    ordered by the results that need them."""
    steps = program.body.steps
    start = max((at + 1 for at, step in enumerate(steps) if not _is_movable(step)), default=0)
    order = _ByResults(steps[start:], program.body.results)
    return replace(program, body=replace(program.body, steps=(*steps[:start], *order.steps())))


def _is_movable(step: Step) -> bool:
    if isinstance(step, Compute):
        return step.op.kind in MOVABLE and not step.formed
    return isinstance(step, MoveValue)


class _ByResults:
    """A new order of steps. `makers`: the index of the step that produces each value; `users`: the
    indices of the steps that use the results of each step."""

    def __init__(self, given: Sequence[Step], results: Sequence[int]) -> None:
        self.given = given
        self.makers = {value: at for at, step in enumerate(given) for value in made(step)}
        self.users: dict[int, list[int]] = defaultdict(list)
        for at in range(len(given)):
            for maker in self._needs(at):
                self.users[maker].append(at)
        ends = {self.makers.get(value) for value in results}
        # moves of results follow the steps that produce their operands
        self.last = {
            at
            for at, step in enumerate(given)
            if isinstance(step, MoveValue) and at in ends and not self.users[at] and self._needs(at)
        }

    def _needs(self, at: int) -> list[int]:
        return [self.makers[value] for value in taken(self.given[at]) if value in self.makers]

    def steps(self) -> Iterator[Step]:
        """Yield the steps: first the steps that several results need, then for each result its
        remaining steps."""
        everything = range(len(self.given))
        shared = self._shared()
        order: dict[int, None] = {}
        for part in (shared, everything):
            for root in self._roots(part):
                for at in self._visit(root, order):
                    order[at] = None
        for at in order:
            yield self.given[at]
            yield from (self.given[user] for user in self.users[at] if user in self.last)

    def _roots(self, part: Collection[int]) -> list[int]:
        """Return the steps of `part` whose results no step of `part` uses, except moves of
        results."""
        return [
            at
            for at in part
            if at not in self.last
            and not any(user in part and user not in self.last for user in self.users[at])
        ]

    def _shared(self) -> frozenset[int]:
        needed: dict[int, set[int]] = {}
        for at in reversed(range(len(self.given))):
            users = [needed[user] for user in self.users[at] if user not in self.last]
            needed[at] = set().union(*users) if users else {at}
            if len(needed[at]) > 2:  # two roots suffice to show that a step is shared
                needed[at] = set(sorted(needed[at])[:2])
        return frozenset(at for at, roots in needed.items() if len(roots) > 1)

    def _visit(self, root: int, done: Collection[int]) -> Iterator[int]:
        """Yield the steps that a root needs, each after its operands, and then the root. Omit the
        steps in `done`; the caller adds each yielded step to it."""
        left = [(root, False)]
        while left:
            at, is_ready = left.pop()
            if is_ready:
                yield at
            elif at not in done:
                left += [(at, True), *((need, False) for need in reversed(self._needs(at)))]
