"""Number the values of a program so that values with equal numbers are equal: they are results of
the same op on operands with equal numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, MutableMapping, Sequence

from shardwright.codegen.ops.table import kind_of
from shardwright.ir.program import Op, Value


class ValueNumbers:
    """The number of each value (`of`), and of each op on numbered operands."""

    def __init__(self, values: Sequence[Value]) -> None:
        self.values = values
        self.of: dict[int, int] = {}
        self._known: dict[Hashable, int] = {}
        self._count = 0
        self._pairs: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        self._sums: dict[tuple[int, int], int] = {}

    def read(self, ops: Sequence[Op]) -> None:
        """Number the results of ops, in order. Values that no earlier op has produced get distinct
        numbers, and so do results of ops with bodies."""
        for op in ops:
            operands = tuple(map(self.number, op.operands))
            if op.bodies:
                for result in op.results:
                    self.number(result)
                continue
            for place, result in enumerate(op.results):
                key = _key(op, operands, place, self.values[result])
                self.of[result] = self._known.setdefault(key, self._count)
                self._count += 1
            if op.kind == "add_any":
                self._sums[min(operands), max(operands)] = self.of[op.results[0]]
            if len(operands) == 2:
                for one, other in (operands, operands[::-1]):
                    self._pairs[op.kind, one].append(other)

    def number(self, value: int) -> int:
        """Return the number of a value; a value that no op uses gets a number of its own."""
        if value not in self.of:
            self.of[value] = self._count
            self._count += 1
        return self.of[value]

    def follow(
        self, ops: Sequence[Op], values: Sequence[Value], env: MutableMapping[int, int | None]
    ) -> None:
        """Add to `env` the numbers of the results of other ops, whose operands have numbers there,
        or None for a result that this program does not compute. `values`: the values of the other
        ops."""
        for op in ops:
            operands = tuple(env.get(v) for v in op.operands)
            for place, result in enumerate(op.results):
                env[result] = None
                if not op.bodies and None not in operands:
                    numbers = tuple(each for each in operands if each is not None)
                    env[result] = self._known.get(_key(op, numbers, place, values[result]))

    def constant(self, value: float, dtype: str) -> int | None:
        """Return the number of a constant, or None if the program has no such constant."""
        op = Op("constant", (), (), (("value", value),))
        return self._known.get(_key(op, (), 0, Value("", (), dtype)))

    def sum_of(self, one: int, other: int) -> int | None:
        """Return the number of the sum of two terms of a gradient, or None if it is not
        computed."""
        return self._sums.get((min(one, other), max(one, other)))

    def beside(self, kind: str, number: int) -> list[int]:
        """Return the numbers of the other operands in ops of a kind that use `number`."""
        return self._pairs[kind, number]


def _key(op: Op, operands: tuple[int, ...], place: int, result: Value) -> Hashable:
    given = tuple(sorted(operands)) if kind_of(op.kind).commutes else operands
    return op.kind, op.params, given, place, result.shape, result.dtype
