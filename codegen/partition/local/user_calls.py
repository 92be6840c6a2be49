"""The steps of one call of a user's function, such as `norm(x, scale)`, within a body.

A backend can write them as a function if none of them communicates. If moves of operands are
between the steps, the call follows these moves."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

from shardwright.codegen.partition.local.leaves import Results
from shardwright.codegen.partition.local.steps import (
    Compute,
    LocalBody,
    LocalProgram,
    MoveValue,
    Step,
    made,
    taken,
)
from shardwright.codegen.partition.local.together import runs_of
from shardwright.ir.program import Op, UserCall, Value

SILENT = ("broadcast_in_dim", "constant", "constrain", "reshape", "squeeze", "transpose")
"""Kinds of ops that passes add, drop or merge with others."""
FEW = 6
"""The most operands and results of a small function."""


@dataclass(frozen=True)
class UserSteps:
    """The steps of one call. `depth`: the number of enclosing calls; `backward`: whether they are
    its backward pass; `operands`: the values from outside, in order of first use; `results`: the
    values that other steps use; `numbers`: the steps of other calls that make numbers which these
    steps use."""

    call: UserCall
    depth: int
    backward: bool
    steps: tuple[Compute, ...]
    operands: tuple[int, ...]
    results: tuple[int, ...]
    numbers: tuple[Compute, ...]

    @property
    def key(self) -> tuple[Results, ...]:
        """The results of each step, which identify the steps."""
        return tuple(map(made, self.steps))

    def values(self) -> tuple[int, ...]:
        """Return the values that the steps make."""
        return tuple(value for results in self.key for value in results)

    def places(self) -> tuple[int, ...]:
        """Return the indices of the results among the values."""
        return tuple(place for place, v in enumerate(self.values()) if v in self.results)

    @property
    def likeness(self) -> Hashable:
        """The key that calls with the same text share."""
        kinds = tuple((step.op.kind, len(step.results)) for step in self.steps)
        return self.call.function, self.call.defined, self.backward, kinds


class WholeCalls:
    """The values that each call of a user's function computes. Steps that are only part of a call
    do not become a function."""

    def __init__(self, program: LocalProgram) -> None:
        self.values = program.program.values
        self.found: dict[tuple[int, int], frozenset[int]] = {}  # by depth and value
        bodies = [program.program.body]
        while bodies:
            body = bodies.pop()
            bodies += (inner for op in body.ops for inner in op.bodies)
            self._read([op for op in body.ops if op.results and not self._is_copy(op.results[0])])

    def _read(self, ops: Sequence[Op]) -> None:
        deepest = max((len(self.values[op.results[0]].calls) for op in ops), default=0)
        for depth in range(deepest):
            places = [(place_of(self.values[op.results[0]], depth), op) for op in ops]
            for place, run in itertools.groupby(places, lambda each: each[0]):
                own = [op for _, op in run] if place else []
                for start, stop in _parts([self.values[op.results[0]] for op in own], depth):
                    loud = [op for op in own[start:stop] if op.kind not in SILENT]
                    part = frozenset(v for op in loud for v in op.results)
                    self.found.update(((depth, v), part) for v in part)

    def is_whole(self, values: Collection[int], depth: int) -> bool:
        """Return whether values of the program, from steps of one call at `depth`, are all the
        values of that call."""
        own = [self.found.get((depth, v), frozenset()) for v in values]
        return any(own) and all(each.issubset(values) for each in own)

    def _is_copy(self, value: int) -> bool:
        return is_copy(self.values[value])


class UserStepsOf:
    """The calls in one body. `around`: the number of calls that contain all its steps, whose own
    functions are already being written."""

    def __init__(
        self, program: LocalProgram, body: LocalBody, around: int, whole: WholeCalls
    ) -> None:
        self.program, self.body, self.around, self.whole = program, body, around, whole
        self.runs = list(runs_of(program, body.steps))
        self.computes = list(self._computes())
        self.numbers: dict[int, list[Compute]] = {}  # the steps that make each number
        self.makers: dict[int, int] = {}  # the run that makes each value
        self.users: dict[int, list[tuple[int, Results]]] = defaultdict(list)
        for at, step in self._numbered():
            self.makers.update(dict.fromkeys(made(step), at))
            self._note_number(step)
            for value in taken(step):
                self.users[value].append((at, made(step)))

    def _computes(self) -> Iterator[tuple[Compute | None, Value | None]]:
        """Yield each step except moves, and its value. A call of a function is yielded as None."""
        for step in self.body.steps:
            if isinstance(step, Compute):
                yield step, self.program.of(step.results[0])
            elif not isinstance(step, MoveValue):
                yield None, None

    def _numbered(self) -> Iterator[tuple[int, Step]]:
        return ((at, step) for at, run in enumerate(self.runs) for step in run)

    def _note_number(self, step: Step) -> None:
        if isinstance(step, Compute) and "value" in dict(step.op.params):
            self.numbers[step.results[0]] = [step]
        elif isinstance(step, Compute) and step.op.kind == "broadcast_in_dim":
            before = self.numbers.get(step.operands[0], [])
            self.numbers.update({step.results[0]: [*before, step]} if before else {})

    def every(self) -> Iterator[UserSteps]:
        """Yield the steps of each call, outer calls first. Steps that two calls share belong to the
        outer call."""
        deepest = max((len(value.calls) for _, value in self.computes if value), default=0)
        found: dict[tuple[Results, ...], UserSteps] = {}
        for depth in range(self.around, deepest):
            for run in self._runs_at(depth):
                for start, stop in _parts([self.program.of(s.results[0]) for s in run], depth):
                    if each := self._of(run[start:stop], depth):
                        call = found.get(each.key, each).call
                        found[each.key] = replace(each, call=call)
        yield from sorted(found.values(), key=lambda each: -len(each.steps))

    def placed(self, is_function: Callable[[UserSteps], bool]) -> dict[int, list[UserSteps]]:
        """Return the outermost calls of functions, by the run of steps that follows each."""
        taken_up: dict[Results, float] = {}  # the place of the call that performs a step
        found: dict[int, list[UserSteps]] = defaultdict(list)
        for each in self.every():
            if any(key in taken_up for key in each.key) or not is_function(each):
                continue
            at = self._at(each, taken_up)
            if at is not None:
                found[at].append(each)
                taken_up.update(dict.fromkeys(each.key, at - 0.5))
        return found

    def _at(self, each: UserSteps, taken_up: dict[Results, float]) -> int | None:
        """Return the run before which a call can be written, after its operands and before the uses
        of its results, or None."""
        makers = {v: made_by for made_by in taken_up for v in made_by}
        places = (
            taken_up[makers[v]] if v in makers else self.makers.get(v, -1) for v in each.operands
        )
        ready = max(places, default=-1)
        first = min(self.makers[v] for v in each.key[0])
        at = max(first, math.floor(ready) + 1)
        if ready == at - 0.5:  # a call that stands there makes an operand
            at += 1
        own = set(each.key)
        uses = (
            taken_up.get(by, run)
            for v in each.results
            for run, by in self.users[v]
            if by not in own
        )
        return at if at - 0.5 < min(uses, default=math.inf) else None

    def _runs_at(self, depth: int) -> Iterator[list[Compute]]:
        """Yield consecutive steps of calls from one place. Copies of steps from other places may
        come between them."""
        run: list[Compute] = []
        before: Hashable = None
        for step, value in self.computes:
            place = value and place_of(value, depth)
            if place == before and place is not None and step is not None:
                run.append(step)
            elif value is None or not is_copy(value):
                yield run
                run, before = [step] if step is not None and place else [], place
        yield run

    def _of(self, steps: Sequence[Compute], depth: int) -> UserSteps | None:
        if any(_communicates(step) for step in steps):
            return None
        call = self.program.of(steps[0].results[0]).calls[depth]
        own = {made(step) for step in steps}
        inside = {v for each in own for v in each}
        outer = (v for step in steps for v in step.operands if v not in inside)
        numbers = {made(step): step for v in outer for step in self.numbers.get(v, ())}
        values = [v for step in steps for v in step.results]
        inside.update(v for each in numbers for v in each)
        operands = dict.fromkeys(v for step in steps for v in step.operands if v not in inside)
        results = tuple(
            v
            for v in values
            if v in self.body.results or any(by not in own for _, by in self.users[v])
        )
        is_backward = self.program.of(values[0]).backward
        is_whole = self.whole.is_whole({self.program.values[v].value for v in values}, depth)
        if not call.function.isidentifier() or not results or not is_whole:
            return None
        return UserSteps(
            call,
            depth,
            is_backward,
            tuple(steps),
            tuple(operands),
            results,
            tuple(step for made_by, step in numbers.items() if made_by not in own),
        )


def small_calls(program: LocalProgram) -> frozenset[frozenset[Results]]:
    """Return the steps of each call in the program's body with so few operands and results that
    none of its parameters need be a tree."""
    calls = UserStepsOf(program, program.body, 0, WholeCalls(program)).every()
    few = (each for each in calls if len(each.operands) + len(each.results) <= FEW)
    return frozenset(frozenset(each.key) for each in few)


def bodies_of(program: LocalProgram) -> Iterator[LocalBody]:
    """Yield every body of a program: its own, those of its functions, and nested ones."""
    bodies = [program.body, *program.functions]
    while bodies:
        body = bodies.pop()
        yield body
        bodies += (each for s in body.steps if isinstance(s, Compute) for each in s.bodies)


def place_of(value: Value, depth: int) -> Hashable:
    """Return a key that the values of one call at `depth` share, or None for other values."""
    calls = value.calls[: depth + 1]
    return (calls, value.backward) if len(calls) > depth else None


def is_copy(value: Value) -> bool:
    """Return whether a pass added a value as a copy of another."""
    return "." in value.name


def _parts(values: Sequence[Value], depth: int) -> Iterator[tuple[int, int]]:
    """Yield the range of each of several consecutive calls from one place, such as a loop. A new
    call begins where the position in the function returns to the first one, unless the function has
    a loop there. Backward passes are not separated."""
    if not values:
        return iter(())
    own = [value.calls[depth] for value in values]
    starts = [
        number
        for number, (before, after) in enumerate(itertools.pairwise(own), 1)
        if before.at > after.at == own[0].at and not (before.is_looped and after.is_looped)
    ]
    return itertools.pairwise((0, *(() if values[0].backward else starts), len(values)))


def _communicates(step: Compute) -> bool:
    """Return whether a step moves data between devices, or is written with local forms."""
    if step.moves or step.formed:
        return True
    return any(
        isinstance(inner, MoveValue) or (isinstance(inner, Compute) and _communicates(inner))
        for body in step.bodies
        for inner in body.steps
    )
