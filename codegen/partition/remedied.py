"""Programs to which a remedy is applied, so that its total effect can be computed: one request of
the program is changed so that a communication becomes unnecessary or smaller.

An argument gets the needed layout from the start, and so do its twins (`local/twins.py`). A result
or a constraint accepts the available layout. Any other value is constrained, where it is produced,
to the layout after the communication; a gradient may also get it from its argument. An all-reduce
becomes a reduce-scatter if any dimension can be split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from shardwright.codegen.ops.layout import LocalLayout
from shardwright.codegen.partition.local.flow import Asked, ValueFlow
from shardwright.codegen.partition.local.remedies import (
    argument_layout,
    arguments_of,
    in_source,
    left_whole,
    others,
    outside_functions,
    results_of,
    scattered,
)
from shardwright.codegen.partition.local.repeated import Repetition
from shardwright.codegen.partition.local.steps import LocalProgram, MoveValue
from shardwright.codegen.partition.local.together import rows_of
from shardwright.codegen.partition.local.twins import twins_of
from shardwright.ir.errors import InputError
from shardwright.ir.program import Body, Op, Program, Value
from shardwright.ir.sharding import Sharding


@dataclass(frozen=True)
class Remedied:
    """A program to which a remedy is applied. `said`: the change in words, such as "params['w'] as
    [{}, {}] (and the same in the results)"; `changed`: the values that it changes, without twins,
    or the places of results."""

    given: Program
    said: str
    changed: tuple[int, ...]


def remedied(given: Program, local: LocalProgram, number: int) -> tuple[Remedied, ...]:
    """Return one program per remedy for communication `number`, or none if no change of a request
    helps.

    Raises InputError if there is no such communication.
    """
    found = [run for run, _ in rows_of(local)]
    if not 1 <= number <= len(found):
        raise InputError(
            "the program has no communication with this number",
            argument="number",
            got=number,
            expected=f"1 to {len(found)}" if found else "none: there are no communications",
        )
    made = (each for step in found[number - 1] for each in _Remedies(given, local, step).every())
    return tuple({(each.said, each.changed): each for each in made}.values())


@dataclass(frozen=True)
class _Remedies:
    given: Program
    local: LocalProgram
    step: MoveValue

    def every(self) -> Iterator[Remedied]:
        if self.step.own or self.step.change.op == "reduce_scatter":
            return
        arguments = arguments_of(ValueFlow(self.local), self.step)
        if arguments:
            yield from self._of_arguments(arguments)
        elif any(step is self.step for step, _ in outside_functions(self.local)):
            yield from self._of_result()
            yield from self._of_constraints()
            yield from self._of_value()
            yield from self._of_repeated()

    @property
    def _before(self) -> LocalLayout:
        return self.local.values[self.step.operand].layout

    @property
    def _value(self) -> int:
        return self.local.values[self.step.operand].value

    def _wanted(self) -> tuple[LocalLayout, ...]:
        """Return layouts in which the value may be produced so that the move is unnecessary or
        smaller."""
        change = self.step.change
        if self.step.inside:
            return (left_whole(self._before, change),)
        if change.op == "all_reduce":
            return tuple(scattered(self.local, self.step))
        return () if change.after.partial else (change.after,)

    def _kept(self) -> tuple[LocalLayout, ...]:
        """Return layouts that a result or a constraint may accept so that the move is unnecessary
        or smaller."""
        if self.step.change.op == "all_reduce":
            return tuple(scattered(self.local, self.step))
        return () if self._before.partial else (self._before,)

    def _of_arguments(self, arguments: tuple[int, ...]) -> Iterator[Remedied]:
        homes = {
            self.local.values[v].value: self.local.values[v].layout
            for v in self.local.body.arguments
        }
        asked = [Asked(v, argument_layout(self.local, self.step, v)) for v in arguments]
        if all(each.layout != homes[each.value] for each in asked):
            yield self._sharded(asked)

    def _sharded(self, arguments: Sequence[Asked]) -> Remedied:
        """Return the program in which arguments and their twins have layouts."""
        values, results = [*self.given.values], [*self.given.results]
        for each in arguments:
            sharding = self.local.axes.sharding(each.layout)
            twins = twins_of(self.local, each.value)
            for value in (each.value, *twins.arguments):
                values[value] = replace(values[value], sharding=sharding)
            for place in twins.results:
                results[place] = sharding
        first, *_ = arguments
        name = f"{self.local.program.argument_name(first.value)}{others(arguments)}"
        said = f"{name} as {values[first.value].sharding}{twins_of(self.local, first.value).said}"
        given = replace(self.given, values=tuple(values), results=tuple(results))
        return Remedied(given, said, tuple(each.value for each in arguments))

    def _of_result(self) -> Iterator[Remedied]:
        for place in results_of(self.local, self.step):
            for layout in self._kept():
                results = list(self.given.results)
                results[place] = self.local.axes.sharding(layout)
                said = f"{self.given.result_names[place]} as {results[place]}"
                yield Remedied(replace(self.given, results=tuple(results)), said, (place,))

    def _of_constraints(self) -> Iterator[Remedied]:
        for layout in self._kept():
            sharding = self.local.axes.sharding(layout)
            made = self._asking(sharding)
            if made.body != self.given.body:
                said = f"the constraint of {self._name} as {sharding}"
                yield Remedied(made, said, (self._value,))

    def _asking(self, sharding: Sharding) -> Program:
        values = list(self.given.values)

        def asked(op: Op) -> Op:
            if op.kind != "constrain" or op.operands != (self._value,):
                return op
            (result,) = op.results
            values[result] = replace(values[result], sharding=sharding)
            return replace(op, params=(("sharding", sharding),))

        body = _changed(self.given.body, asked)
        return replace(self.given, body=body, values=tuple(values))

    def _of_value(self) -> Iterator[Remedied]:
        for layout in self._wanted():
            asked = Asked(self._value, layout)
            yield from self._of_primal(asked)
            yield from self._constraint(asked, self._name)

    def _of_primal(self, asked: Asked) -> Iterator[Remedied]:
        """Yield the program in which the argument whose gradient moves has the gradient's layout,
        unless the gradient is a result."""
        program = self.local.program
        if not program.values[asked.value].backward or [
            *results_of(self.local, self.step, through=True)
        ]:
            return
        primal = ValueFlow(self.local).primal(asked)
        if primal is not None and primal.value in program.body.arguments:
            yield self._sharded([primal])

    def _of_repeated(self) -> Iterator[Remedied]:
        found = Repetition(ValueFlow(self.local)).after(self.step)
        kept = None if found is None or found.alike > 1 else found.kept
        written = None if kept is None else self.local.program.values[kept.value].written
        if kept is not None and written is not None:
            yield from self._constraint(kept, written.text)

    def _constraint(self, asked: Asked, name: str) -> Iterator[Remedied]:
        """Yield the program in which a value has a layout where it is made."""
        if asked.value >= len(self.given.values):
            return
        sharding = self.local.axes.sharding(asked.layout)
        new, old = len(self.given.values), self.given.values[asked.value]
        body = _constrained(self.given.body, asked.value, new, sharding)
        if body != self.given.body:
            made = Value(f"{old.name}_asked", old.shape, old.dtype, sharding, old.line)
            given = replace(self.given, body=body, values=(*self.given.values, made))
            yield Remedied(given, f"{name} as {sharding}", (asked.value,))

    @property
    def _name(self) -> str:
        return in_source(ValueFlow(self.local), self.step)


def _changed(body: Body, changed: Callable[[Op], Op]) -> Body:
    ops = (replace(op, bodies=tuple(_changed(b, changed) for b in op.bodies)) for op in body.ops)
    return replace(body, ops=tuple(map(changed, ops)))


def _constrained(body: Body, value: int, new: int, sharding: Sharding) -> Body:
    """Return a body that constrains a value where it is defined. Its users take the constrained
    value, which has the number `new`."""
    params = (("sharding", sharding),)
    constraint = Op("constrain", (value,), (new,), params)
    is_here = value in body.arguments
    ops = [constraint] if is_here else []
    for op in body.ops:
        if is_here:
            ops.append(replace(op, operands=tuple(new if v == value else v for v in op.operands)))
            continue
        inner = tuple(_constrained(each, value, new, sharding) for each in op.bodies)
        ops.append(replace(op, bodies=inner))
        if value in op.results:
            is_here = True
            ops.append(replace(constraint, line=op.line))
    results = tuple(new if is_here and v == value else v for v in body.results)
    return replace(body, ops=tuple(ops), results=results)
