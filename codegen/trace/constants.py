"""Remove dead ops, and copy each constant for each of its uses, so that the sharding of one use
does not affect the others.

An op counts as constant if it is a constant or an iota, a broadcast, slice or elementwise op with
only constant operands, or a broadcast of any scalar.
"""

from __future__ import annotations

from dataclasses import replace

from shardwright.codegen.ops.table import ELEMENTWISE
from shardwright.ir.program import Body, Op, Program, Value

PURE = ELEMENTWISE | {"broadcast_in_dim", "slice"}
SOURCES = frozenset({"constant", "iota"})


def split_constants(program: Program) -> Program:
    """Return the program without dead ops, and with a copy of each constant sub-computation for
    each op that uses it."""
    split = _Split(list(program.values))
    body = split.body(without_dead(program.body, frozenset().union(*program.groups)))
    return _compacted(replace(program, values=tuple(split.values), body=body))


def without_dead(body: Body, kept: frozenset[int]) -> Body:
    """Return the body without ops whose results are unused, except ops that produce a value in
    `kept`."""
    needed = {*body.results, *kept}
    ops: list[Op] = []
    for op in reversed(body.ops):
        if needed.isdisjoint(op.results):
            continue
        bodies = tuple(without_dead(inner, kept) for inner in op.bodies)
        ops.append(replace(op, bodies=bodies))
        needed.update(op.operands)
    return Body(body.arguments, tuple(reversed(ops)), body.results)


class _Split:
    """Rewrite bodies so that each use of a constant has its own copy. `constant`: the op that
    produces each constant value."""

    def __init__(self, values: list[Value]) -> None:
        self.values = values
        self.copies: dict[int, int] = {}

    def body(self, body: Body) -> Body:
        constant: dict[int, Op] = {}
        ops: list[Op] = []
        for op in body.ops:
            bodies = tuple(self.body(inner) for inner in op.bodies)
            if self._is_constant(op, constant):
                constant[op.results[0]] = op
                continue
            operands = self._used(op.operands, constant, ops)
            ops.append(replace(op, operands=operands, bodies=bodies))
        results = tuple(self._copy(v, constant, ops, {}) for v in body.results)
        return Body(body.arguments, tuple(ops), results)

    def _is_constant(self, op: Op, constant: dict[int, Op]) -> bool:
        if op.kind in SOURCES:
            return True
        scalar = op.kind == "broadcast_in_dim" and not self.values[op.operands[0]].shape
        made = op.kind in PURE and all(operand in constant for operand in op.operands)
        return (scalar or made) and len(op.results) == 1

    def _used(
        self, operands: tuple[int, ...], constant: dict[int, Op], ops: list[Op]
    ) -> tuple[int, ...]:
        copied: dict[int, int] = {}  # if an op reads a constant twice, both reads share one copy
        return tuple(self._copy(v, constant, ops, copied) for v in operands)

    def _copy(
        self, value: int, constant: dict[int, Op], ops: list[Op], copied: dict[int, int]
    ) -> int:
        """Return a private copy of a value, or the value itself if it is not constant. Append the
        ops of the copy to `ops`."""
        op = constant.get(value)
        if op is None:
            return value
        if value not in copied:
            operands = tuple(self._copy(v, constant, ops, copied) for v in op.operands)
            copied[value] = self._fresh(value)
            ops.append(replace(op, operands=operands, results=(copied[value],)))
        return copied[value]

    def _fresh(self, value: int) -> int:
        """Return the value itself for its first use, and a renamed copy for each later use."""
        count = self.copies[value] = self.copies.get(value, 0) + 1
        if count == 1:
            return value
        old = self.values[value]
        self.values.append(replace(old, name=f"{old.name}.{count}"))
        return len(self.values) - 1


def _compacted(program: Program) -> Program:
    alive: set[int] = set()
    _collect(program.body, alive)
    number = {old: new for new, old in enumerate(sorted(alive))}
    values = tuple(program.values[old] for old in sorted(alive))
    groups = tuple(tuple(number[v] for v in group) for group in program.groups)
    return replace(program, values=values, body=_renumbered(program.body, number), groups=groups)


def _collect(body: Body, alive: set[int]) -> None:
    alive.update(body.arguments)
    for op in body.ops:
        alive.update(op.results)
        for inner in op.bodies:
            _collect(inner, alive)


def _renumbered(body: Body, number: dict[int, int]) -> Body:
    ops = tuple(
        replace(
            op,
            operands=tuple(number[v] for v in op.operands),
            results=tuple(number[v] for v in op.results),
            bodies=tuple(_renumbered(inner, number) for inner in op.bodies),
        )
        for op in body.ops
    )
    arguments, results = (tuple(number[v] for v in vs) for vs in (body.arguments, body.results))
    return Body(arguments, ops, results)
