"""Folding: turn a repeated layer into one function with several calls.

Repeated steps that differ only in their values become a function. Its arguments are the values that
the steps take from outside, and its results the values that are used outside.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from shardwright.codegen.partition.local.leaves import is_update, leaves
from shardwright.codegen.partition.local.repeats import Item, Repeat, repeats
from shardwright.codegen.partition.local.steps import (
    CallFunction,
    Compute,
    LocalBody,
    LocalProgram,
    LocalValue,
    MoveValue,
    Step,
    made,
    taken,
)
from shardwright.codegen.partition.local.user_calls import small_calls

LEAST = 24
"""The fewest steps that a function must save."""
SCOPES = 3
"""Splitting a named scope counts as much as this number of values crossing a border."""


def folded(
    program: LocalProgram, arguments: Sequence[Hashable], results: Sequence[Hashable]
) -> LocalProgram:
    """Return a program in which calls of functions replace repeated steps. `arguments`, `results`:
    the owner of each argument and result, such as a layer."""
    body, steps = program.body, program.body.steps
    owners = dict(zip((*body.arguments, *body.results), (*arguments, *results), strict=True))
    found = repeats([_item(step, program, owners) for step in steps])
    found = tuple(each for each in found if each.period * (each.copies - 1) >= LEAST)
    single, *_ = leaves(program)
    found = tuple(
        each for each in found if not is_update(steps[each.start :][: each.period], single)
    )
    if found:
        calls = small_calls(program)
        found = tuple(
            each for each in found if _results(steps[each.start :][: each.period]) not in calls
        )
    if not found:
        return program
    fold = _Fold(program)
    out: list[Step] = []
    at = 0
    for each in found:
        out += steps[at : each.start]
        out += fold.calls(each)
        at = each.stop
    out += steps[at:]
    return replace(
        program,
        values=tuple(fold.values),
        body=replace(program.body, steps=tuple(out)),
        functions=tuple(fold.functions),
        alike=fold.alike,
    )


def _results(steps: Sequence[Step]) -> frozenset[tuple[int, ...]]:
    return frozenset(map(made, steps))


def length(program: LocalProgram) -> int:
    """Return the number of steps plus the number of values that functions take and return."""
    functions = program.functions
    ends = sum(len(each.arguments) + len(each.results) for each in functions)
    return ends + sum(len(each.steps) for each in (program.body, *functions))


def _item(step: Step, program: LocalProgram, owners: Mapping[int, Hashable]) -> Item:
    own = {owners[v] for v in (*taken(step), *made(step)) if v in owners}
    for value in step.results if isinstance(step, Compute) else ():
        scope = program.of(value).scope
        prefixes = (scope[:end] for end in range(1, len(scope) + 1))
        own.update((weight, *prefix) for prefix in prefixes for weight in range(SCOPES))
    return Item(_key(step, program), taken(step), made(step), frozenset(own))


def _key(step: Step, program: LocalProgram) -> Hashable:
    """Return the key of a step, which is equal for steps that differ only in their values."""
    types = tuple(
        (program.of(v).shape, program.of(v).dtype, program.values[v].layout)
        for v in (*taken(step), *made(step))
    )
    if isinstance(step, MoveValue):
        return step.change, step.again, types
    if isinstance(step, Compute):
        inner = tuple(_body_key(body, program) for body in step.bodies)
        moves = tuple(move.change for move in step.moves)
        return step.op.kind, step.op.params, step.op.line, types, inner, step.formed, moves
    return step.function, types


def _body_key(body: LocalBody, program: LocalProgram) -> Hashable:
    """Return the key of a body, which is equal for bodies that differ only in the numbers of their
    values."""
    numbers: dict[int, int] = {}

    def numbered(values: Sequence[int]) -> tuple[int, ...]:
        return tuple(numbers.setdefault(value, len(numbers)) for value in values)

    rows = [
        (_key(step, program), numbered(taken(step)), numbered(made(step))) for step in body.steps
    ]
    return numbered(body.arguments), tuple(rows), numbered(body.results)


@dataclass
class _Slots:
    """The values that the copies of a stretch take from outside, and their values that are used
    outside: one row per copy, one column per argument or result of the function."""

    arguments: list[tuple[int, ...]]  # rows of values, one row per copy
    results: list[tuple[int, ...]]


def _from_outside(copy: Sequence[Step]) -> tuple[int, ...]:
    own = {v for step in copy for v in made(step)}
    return tuple(dict.fromkeys(v for step in copy for v in taken(step) if v not in own))


class _Fold:
    """Build the functions, extending `values`, `functions` and `alike`."""

    def __init__(self, program: LocalProgram) -> None:
        self.program, self.steps = program, program.body.steps
        self.values = list(program.values)
        self.functions: list[LocalBody] = []
        self.alike: dict[int, int] = {}
        self.last_use: dict[int, int] = {}
        for place, step in enumerate(self.steps):
            self.last_use.update(dict.fromkeys(taken(step), place))
        self.last_use.update(dict.fromkeys(program.body.results, len(self.steps)))

    def calls(self, repeat: Repeat) -> Iterator[CallFunction]:
        copies = [self.steps[start : start + repeat.period] for start in repeat.places(0)]
        for copy in copies[1:]:
            for first, other in zip(copies[0], copy, strict=True):
                pairs = zip(made(other), made(first), strict=True)
                values = self.program.values
                self.alike.update((values[own].value, values[like].value) for own, like in pairs)
        slots = self._slots(repeat, copies)
        number = len(self.functions)
        self.functions.append(self._function(copies[0], slots))
        for arguments, results in zip(slots.arguments, slots.results, strict=True):
            yield CallFunction(number, arguments, results)

    def _slots(self, repeat: Repeat, copies: Sequence[tuple[Step, ...]]) -> _Slots:
        """Return the inputs and outputs of copies. A result is an output if the corresponding value
        of any copy is used outside that copy."""
        own = [[v for step in copy for v in made(step)] for copy in copies]
        stops = [start + repeat.period for start in repeat.places(0)]
        used = [
            any(self.last_use.get(v, -1) >= stop for v, stop in zip(column, stops, strict=True))
            for column in zip(*own, strict=True)
        ]
        results = [tuple(itertools.compress(values, used)) for values in own]
        return _Slots([_from_outside(copy) for copy in copies], results)

    def _function(self, copy: Sequence[Step], slots: _Slots) -> LocalBody:
        renumbered: dict[int, int] = {}

        def new(values: Sequence[int]) -> tuple[int, ...]:
            for value in values:
                if value not in renumbered:
                    renumbered[value] = len(self.values)
                    own = self.program.values[value]
                    self.values.append(LocalValue(own.value, own.layout))
            return tuple(renumbered[value] for value in values)

        def step_of(step: Step) -> Step:
            if isinstance(step, MoveValue):
                (operand,), (result,) = new((step.operand,)), new((step.result,))
                return replace(step, operand=operand, result=result)
            return replace(step, operands=new(step.operands), results=new(step.results))

        arguments = new(slots.arguments[0])
        steps = tuple(map(step_of, copy))
        return LocalBody(arguments, steps, new(slots.results[0]))
