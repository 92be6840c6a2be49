"""Choose the value after which a gradient is named: `d_h` is the gradient of `h`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from shardwright.ir.program import Op, Program, ops_of

VIEWS = {
    "broadcast_in_dim": "_reshaped",
    "reduce_sum": "_reshaped",
    "reshape": "_reshaped",
    "squeeze": "_reshaped",
    "transpose": "_transposed",
}
"""Ops that may produce a gradient without changing its elements, each with the suffix for the name
of its operand."""


class Gradients:
    """The gradients among a program's values. `primals`: for each gradient, the values whose
    gradient it is, first the one that names it; `suffixes`: the suffix of each gradient's name,
    after `d_h`.

    A gradient is named after an argument if possible, otherwise after a value that the user named
    (`chosen`), otherwise after the last value. A value that is only reshaped into such a gradient
    is named after it too."""

    def __init__(
        self, program: Program, found: Mapping[int, tuple[int, ...]], chosen: Collection[int]
    ) -> None:
        self.program, self.chosen = program, chosen
        self.arguments = frozenset(program.body.arguments)
        self.primals = {value: self._in_order(of) for value, of in found.items()}
        self.suffixes = dict.fromkeys(self.primals, "")
        self.users: defaultdict[int, list[Op]] = defaultdict(list)
        for op in ops_of(program.body):
            for operand in op.operands:
                self.users[operand].append(op)
        for op in reversed([*ops_of(program.body)]):
            for operand in op.operands:
                self._view(operand)

    def _in_order(self, values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(values, key=lambda v: (-self._rank(v), -v)))

    def _rank(self, value: int) -> int:
        return 2 if value in self.arguments else int(value in self.chosen)

    def _view(self, value: int) -> None:
        """Name a value after the gradient into which its only use turns it."""
        users, values = self.users[value], self.program.values
        if len(users) != 1 or value in self.program.body.results:
            return
        own, (result, *_) = self.primals.get(value), users[0].results
        of = self.primals.get(result)
        one, other = values[value], values[result]
        if of is None or one.size != other.size or one.dtype != other.dtype:
            return
        if users[0].kind in VIEWS and (own is None or self._rank(own[0]) < self._rank(of[0])):
            primal, suffix = values[of[0]], self.suffixes[result]
            is_turned = users[0].kind == "transpose" or suffix == "_transposed"
            suffix = VIEWS["transpose"] if is_turned else VIEWS[users[0].kind]
            self.primals[value] = of
            self.suffixes[value] = "" if not is_turned and one.shape == primal.shape else suffix
