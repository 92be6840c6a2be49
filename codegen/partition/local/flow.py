"""The steps that produce and use each local value, for advice on a communication: the bytes that
another layout would require, and the value whose gradient moves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from shardwright.codegen.ops.layout import LocalLayout, Names
from shardwright.codegen.partition.local.known import plain_name
from shardwright.codegen.partition.local.steps import (
    CallFunction,
    Compute,
    LocalBody,
    LocalProgram,
    MoveValue,
    calls_of,
    item_bytes,
)
from shardwright.codegen.propagate.rules import rule_of
from shardwright.ir.program import Op, ops_of
from shardwright.ir.steps import ring_bytes


@dataclass(frozen=True)
class Asked:
    """A value of the program, and a layout in which it would be."""

    value: int
    layout: LocalLayout


@dataclass(frozen=True)
class ValueFlow:
    """The steps of a program, by the local values that they produce and use."""

    local: LocalProgram
    _costs: dict[Names, dict[int, int]] = field(default_factory=dict)

    @cached_property
    def makers(self) -> dict[int, Compute | MoveValue]:
        """The step that produces each local value, in order of execution within a body. Calls and
        ops with bodies are omitted."""
        return {
            result: step
            for step in _steps([self.local.body, *self.local.functions])
            if not isinstance(step, CallFunction)
            for result in ((step.result,) if isinstance(step, MoveValue) else step.results)
        }

    @cached_property
    def functions(self) -> dict[int, int]:
        """The number of the function of equal layers that contains each local value. Values of the
        program's own body are omitted."""
        found: dict[int, int] = {}
        for number, body in enumerate(self.local.functions):
            found.update(dict.fromkeys(body.arguments, number))
            for step in _steps([body]):
                made = (step.result,) if isinstance(step, MoveValue) else step.results
                found.update(dict.fromkeys(made, number))
        return found

    def calls(self, step: MoveValue) -> int:
        """Return the number of equal layers that perform a move, 1 for a move outside functions."""
        number = self.functions.get(step.result)
        return 1 if number is None else len(calls_of(self.local, number))

    def saved(self, step: MoveValue) -> int:
        """Return the bytes that each device would no longer receive in a move if the value were
        produced in the layout after the move. The number is negative if its sources would then need
        more bytes."""
        axes, received = step.change.axes, step.change.received
        needed = self.cost(step.operand, axes)
        if step.inside:
            return received - needed
        return received - round(received * needed / max(self._gathered(step.operand, axes), 1))

    def cost(self, local: int, axes: Names) -> int:
        """Return the bytes that each device would receive to have a value that is not split over
        `axes`: by gathering the value or, if that takes fewer bytes, the values from which it is
        computed."""
        if axes not in self._costs:
            costs: dict[int, int] = {}
            for each, step in self.makers.items():
                costs[each] = self._cost(each, step, axes, costs)
            self._costs[axes] = costs
        return self._costs[axes].get(local, self._gathered(local, axes))

    def _cost(
        self, local: int, step: Compute | MoveValue, axes: Names, costs: dict[int, int]
    ) -> int:
        gathered = self._gathered(local, axes)
        if isinstance(step, MoveValue) and step.is_sent:
            return gathered
        given = {step.operand} if isinstance(step, MoveValue) else {*step.operands}
        return min(gathered, sum(costs.get(v, self._gathered(v, axes)) for v in given))

    def _gathered(self, local: int, axes: Names) -> int:
        """Return the bytes that each device receives if a local value is gathered over `axes`."""
        split = [name for name in self.local.values[local].layout.used if name in axes]
        parts = math.prod(self.local.axes.sizes[name] for name in split)
        own = math.prod(self.local.shape(local)) * item_bytes(self.local.of(local).dtype)
        return ring_bytes("all_gather", own * parts, parts)

    def view_of(self, local: int) -> int:
        """Return the original of a value that was only broadcast, reshaped or cast, with the
        same number of elements; the value itself if it was not."""
        while isinstance(step := self.makers.get(local), Compute) and step.op.kind in (
            *("broadcast_in_dim", "convert_element_type", "copy", "reshape", "squeeze"),
        ):
            (operand,) = step.operands
            if self.local.of(operand).size != self.local.of(local).size:
                break
            local = operand
        return local

    def primal(self, asked: Asked) -> Asked | None:
        """Return the value of the forward pass whose gradient `asked` is, with the layout that it
        has then, None if it is not known. A gradient may still be transposed or reshaped."""
        own = self._primal_of(asked.value)
        if own is not None:
            return replace(asked, value=own)
        after = self.users.get(asked.value, [])
        is_turned = self.local.program.values[asked.value].gradient_of and len(after) == 1
        found = self.carried(after[0], asked) if is_turned else None
        return None if found is None else self.primal(found)

    def _primal_of(self, value: int) -> int | None:
        """Return the value of the forward pass whose gradient a value is, None if it is not known
        or if the gradient is still in a different shape."""
        gradient = self.local.program.values[value]
        if not gradient.gradient_of:
            return None
        first = gradient.gradient_of[0]
        suffix = plain_name(gradient).removeprefix(f"d_{first}")
        return None if suffix else self._named.get(first)

    def whole(self, asked: Asked) -> Asked | None:
        """Return the expression of the user that `asked` is or that it is a part of, with the
        layout that it has then, None if there is none."""
        if self.local.program.values[asked.value].written is not None:
            return asked
        values = self.local.program.values
        after = [op for op in self.users.get(asked.value, []) if not values[op.results[0]].backward]
        found = self.carried(after[0], asked) if len(after) == 1 else None
        return None if found is None else self.whole(found)

    def carried(self, op: Op, asked: Asked) -> Asked | None:
        """Return the result of an op with the layout that it has if the op needs no communication
        for the operand `asked`: None if another dimension of the result is split over the same
        axes, or if the result has no dimension for one that is split."""
        values, axes = self.local.program.values, self.local.axes
        rule = None if op.bodies or len(op.results) != 1 else rule_of(op, values)
        if rule is None:
            return None
        result = values[op.results[0]]
        own = rule.operands[op.operands.index(asked.value)]
        dims = [*axes.layout(result.sharding, result.shape).dims]
        for factors, names in zip(own, asked.layout.dims, strict=True):
            places = [at for at, each in enumerate(rule.results[0]) if factors and each == factors]
            if names and not places:
                return None
            for at in places:
                dims[at] = names
        used = [name for names in dims for name in names]
        return Asked(op.results[0], LocalLayout(tuple(dims))) if len(used) == len({*used}) else None

    @cached_property
    def users(self) -> dict[int, list[Op]]:
        """The ops of the program that use each of its values."""
        found: dict[int, list[Op]] = {}
        for op in ops_of(self.local.program.body):
            for operand in dict.fromkeys(op.operands) if op.results else ():
                found.setdefault(operand, []).append(op)
        return found

    @cached_property
    def _named(self) -> dict[str, int]:
        return {value.name: at for at, value in enumerate(self.local.program.values)}


def _steps(given: Sequence[LocalBody]) -> Iterator[Compute | MoveValue | CallFunction]:
    """Yield the steps of bodies, then the steps of the bodies inside them. Ops with bodies are
    omitted."""
    bodies = [*given]
    for body in bodies:
        for step in body.steps:
            if isinstance(step, Compute) and step.bodies:
                bodies += step.bodies
            else:
                yield step
