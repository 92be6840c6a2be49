"""Products of a partial sum with a value that is computed from the reduced sum. Such products must
use the reduced sum on both sides.

A square computed as partial sums times their sum is correct up to rounding. But if the partial sums
cancel, the result may be negative, and an optimizer then takes its square root. So neither factor
may be partial.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from shardwright.codegen.ops.table import kind_of
from shardwright.codegen.partition.local.costs import Costs
from shardwright.codegen.partition.local.ports import PORT
from shardwright.ir.program import Body, Op


class Squares:
    """Find products of partial sums with values computed from their sum, in a program with given
    splits. Values in repeated stretches are followed separately."""

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        self.made_by: dict[int, tuple[float, Op]] = {}  # the producing op and its index
        for place, op in enumerate(_ops(costs.program.body)):
            self.made_by.update(dict.fromkeys(op.results, (place, op)))
        for op in costs.ops:
            if op.kind == PORT:  # a value that a loop carries also depends on later ops
                self.made_by.update(dict.fromkeys(op.results, (math.inf, op)))
        self.same = _same(costs.program.body)
        self.number_of = {
            value: number
            for number, members in enumerate(costs.members)
            for op in members
            for value in op.results
        }

    def found(self) -> list[int]:
        """Return the numbers of ops that multiply partial sums by values computed from their
        sum."""
        return [
            number
            for number, split in enumerate(self.costs.split)
            if split is not None and len(split.carriers) == 1 and self._is_one(number)
        ]

    def _is_one(self, number: int) -> bool:
        op, split = self.costs.ops[number], self.costs.split[number]
        if split is None or kind_of(op.kind).terms != "either":
            return False
        (carrier,) = split.carriers
        return self._follows(op.operands[1 - carrier], self._passed(op.operands[carrier]))

    def _passed(self, value: int) -> set[int]:
        """Return the values whose partial sums reach this value unreduced, including the value
        itself."""
        found: set[int] = set()
        stack = [value]
        while stack:
            own = stack.pop()
            if own in found or own not in self.number_of:
                continue
            split = self.costs.split[self.number_of[own]]
            found.update((own, self.same.get(own, own)))
            if split is not None:
                op = self.made_by[own][1]
                stack += (op.operands[place] for place in split.carriers)
        return found

    def _follows(self, value: int, sources: set[int]) -> bool:
        """Return whether a value is one of `sources`, or is computed from one of them."""
        first = min(
            (self.made_by[source][0] for source in sources if source in self.made_by), default=0
        )
        seen: set[int] = set()
        stack = [value]
        while stack:
            own = stack.pop()
            if own in sources or self.same.get(own, own) in sources:
                return True
            if own in seen or own not in self.made_by:
                continue
            seen.add(own)
            place, op = self.made_by[own]
            if place > first:
                stack += op.operands
        return False


def _ops(body: Body) -> Iterator[Op]:
    """Yield the ops of a body and of its inner bodies, in order. An op follows the ops of its
    bodies."""
    for op in body.ops:
        for inner in op.bodies:
            yield from _ops(inner)
        yield op


def _same(body: Body) -> dict[int, int]:
    """Map each value to the first value that is computed in the same way."""
    first: dict[object, tuple[int, ...]] = {}
    same: dict[int, int] = {}
    for op in _ops(body):
        if not op.bodies:
            key = op.kind, op.params, tuple(same.get(value, value) for value in op.operands)
            same.update(zip(op.results, first.setdefault(key, op.results), strict=True))
    return same
