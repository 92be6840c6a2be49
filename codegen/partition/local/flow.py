"""The steps that produce and use each local value, for advice on a communication: the bytes that
another layout would require, and the value whose gradient moves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from shardwright.codegen.ops.layout import Names
from shardwright.codegen.partition.local.steps import (
    CallFunction,
    Compute,
    LocalBody,
    LocalProgram,
    MoveValue,
    calls_of,
    item_bytes,
)
from shardwright.ir.program import Value
from shardwright.ir.steps import ring_bytes


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
        if step.change.inside:
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

    def primal(self, step: MoveValue) -> Value | None:
        """Return the value of the forward pass whose gradient a communication moves, None if it is
        not known, or if the gradient is moved in a different shape."""
        gradient = self.local.of(step.operand)
        if not gradient.gradient_of:
            return None
        first = gradient.gradient_of[0]
        suffix = gradient.name.removeprefix(f"d_{first}").partition("_again")[0]
        return None if suffix else self._named.get(first)

    @cached_property
    def _named(self) -> dict[str, Value]:
        return {value.name: value for value in self.local.program.values}


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
