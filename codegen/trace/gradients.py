"""Name gradients: `d_h` is the gradient of `h`."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from shardwright.codegen.ops.table import VIEWS
from shardwright.ir.program import Line, Op, Program, ops_of

Place = tuple[Line | None, tuple[str, ...]]
"""A line of the user's code and the named scopes there."""
ADDS = 3
"""Sums in a row through which a gradient passes unchanged; more would not change the names."""
PASSING = VIEWS | {"convert_element_type", "reduce_sum"}


class Gradients:
    """The names of the values of a program whose gradients backward passes compute. `names`: the
    names of all values; `places`: their places; `backward`: whether a backward pass computes them.

    The backward pass produces the gradient of a value where the forward pass uses the value, and
    uses the gradient where the forward pass produces the value. A gradient has a name only if all
    values that fit its places have the same name.
    """

    def __init__(
        self,
        program: Program,
        names: Sequence[str],
        places: Sequence[Place],
        backward: Sequence[bool],
    ) -> None:
        self.program, self.names, self.places, self.backward = program, names, places, backward
        self.users: defaultdict[int, list[Op]] = defaultdict(list)
        self.makers: dict[int, Op] = {}
        for op in ops_of(program.body):
            for operand in op.operands:
                self.users[operand].append(op)
            self.makers.update(dict.fromkeys(op.results, op))
        self.arguments: defaultdict[Place, set[int]] = defaultdict(set)  # by the place of their use
        self.passing: defaultdict[tuple[Place, Place], set[int]] = defaultdict(set)
        for value in range(len(program.values)):
            for used in {*self._used(value)}:
                if value in program.body.arguments:
                    self.arguments[used].add(value)
                for made in {*self._made(value)}:
                    self.passing[made, used].add(value)

    def found(self) -> dict[int, str]:
        """Return the names of gradients, by value."""
        out: dict[int, str] = {}
        for op in reversed([*ops_of(self.program.body)]):
            if len(op.results) == 1 and self.backward[op.results[0]]:
                (result,) = op.results
                name = self._of(result) or self._of_view(result, out)
                if name:
                    out[result] = name
        return out

    def _of(self, gradient: int) -> str:
        """Return the name of a gradient, or "" if it is unknown."""
        here, value = self.places[gradient], self.program.values[gradient]
        users = self.users[gradient]
        back = next((o for o in users if o.results and self.backward[o.results[0]]), None)
        if back is not None and back.kind == "add_any":  # it is a term of a gradient
            return ""
        among = self.arguments[here] if back is None else set()
        if back is not None and self.places[back.results[0]] != here:
            among = self.passing[self.places[back.results[0]], here]
        values = self.program.values
        alike = (
            v for v in among if (values[v].shape, values[v].dtype) == (value.shape, value.dtype)
        )
        found = {re.sub(r"^.*_\d+_", "", self.names[v]) for v in alike}
        return f"d_{found.pop()}" if len(found) == 1 else ""

    def _of_view(self, value: int, known: dict[int, str]) -> str:
        """Return the name of a gradient that is only reshaped before it gets that name, or ""."""
        users, values = self.users[value], self.program.values
        if len(users) != 1 or users[0].kind not in PASSING:
            return ""
        (result,) = users[0].results
        return known.get(result, "") if values[result].size == values[value].size else ""

    def _used(self, value: int) -> Iterator[Place]:
        if not self.backward[value]:
            for op in self.users[value]:
                if op.results and not self.backward[op.results[0]]:
                    yield self.places[op.results[0]]

    def _made(self, value: int, adds: int = ADDS) -> Iterator[Place]:
        """Yield the places of the op that produces a value and, if the op is a sum, of its terms of
        the same shape, which have the same gradient."""
        op = self.makers.get(value)
        if op is None:
            return
        yield self.places[value]
        if op.kind == "add" and adds:
            for operand in op.operands:
                if self.program.values[operand].shape == self.program.values[value].shape:
                    yield from self._made(operand, adds - 1)
