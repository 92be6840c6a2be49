"""Check that a program is well formed. Tests check this between passes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import chain

from shardwright.ir.program import CONTROL, Body, Dims, Op, Program, Rule, Value
from shardwright.ir.program_control import check_control, need


def well_formed(program: Program) -> Program:
    """Return the program unchanged. Raise InternalError, stating the first broken rule, if the
    program is malformed."""
    return _Check(program).run()


class _Check:
    """Checks one program in a single walk over its ops. In the methods, `defined` is the set of
    values that an op may use."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.owned: set[int] = set()

    def run(self) -> Program:
        program = self.program
        names = [value.name for value in program.values]
        need(len(set(names)) == len(names), "the names of values must be distinct")
        need(
            len(program.results) == len(program.body.results),
            "each result must have a sharding, or None",
        )
        devices = {frozenset(mesh.device_ids) for mesh in program.meshes}
        need(len(devices) < 2, "all meshes must have the same devices")
        for value in program.values:
            self._value(value)
        self._body(program.body, set())
        for result, sharding in zip(program.body.results, program.results, strict=True):
            rank = len(program.values[result].shape)
            need(
                sharding is None or sharding.rank == rank,
                "the sharding of a result must have the rank of the result",
            )
        for group in program.groups:
            shapes = {program.values[member].shape for member in group}
            need(len(shapes) == 1, "the values of a group must have the same shape")
        need(self.owned == set(range(len(names))), "every value must be defined")
        return program

    def _value(self, value: Value) -> None:
        sharding = value.sharding
        if sharding is None:
            return
        need(sharding.rank == len(value.shape), f"the sharding of %{value.name} must have its rank")
        need(
            sharding.mesh in self.program.meshes,
            f"the mesh of %{value.name} must be in the program",
        )

    def _body(self, body: Body, outer: set[int]) -> None:
        defined = set(outer)
        self._define(body.arguments, defined)
        for op in body.ops:
            self._used(op.operands, defined, op.kind)
            for inner in op.bodies:
                self._body(inner, defined)
            self._define(op.results, defined)
            check_op(op, self.program.values)
        self._used(body.results, defined, "return")

    def _define(self, values: Iterable[int], defined: set[int]) -> None:
        for value in values:
            need(0 <= value < len(self.program.values), f"value {value} must exist")
            name = self.program.values[value].name
            need(value not in self.owned, f"%{name} must be defined only once")
            self.owned.add(value)
            defined.add(value)

    def _used(self, values: Iterable[int], defined: set[int], kind: str) -> None:
        for value in values:
            name = self.program.values[value].name if value < len(self.program.values) else value
            need(value in defined, f"%{name} must be defined before {kind} uses it")


def check_op(op: Op, values: Sequence[Value]) -> None:
    """Raise InternalError unless the params, the bodies and the rule of an op are well formed."""
    names = [name for name, _ in op.params]
    need(
        names == sorted(set(names)),
        f"the parameters of {op.kind} must be sorted by name and distinct",
    )
    bodies = len(op.bodies)
    right = bodies > 0 if op.kind == "cond" else bodies == CONTROL.get(op.kind, 0)
    need(right, f"{op.kind} must not have {bodies} bodies")
    check_control(op, values)
    if op.rule is not None:
        operands = [values[value].shape for value in op.operands]
        results = [values[value].shape for value in op.results]
        check_rule(op.rule, operands, results, op.kind)


def check_rule(
    rule: Rule, operands: list[tuple[int, ...]], results: list[tuple[int, ...]], kind: str
) -> None:
    """Raise InternalError unless a rule fits operands and results of these shapes. `kind`: the kind
    of the op, for the message."""
    need(
        len(rule.operands) == len(operands),
        f"the rule of {kind} must have {len(operands)} operands",
    )
    need(len(rule.results) == len(results), f"the rule of {kind} must have {len(results)} results")
    for dims, shape in zip(rule.tensors, chain(operands, results), strict=True):
        need(len(dims) == len(shape), f"the rule of {kind} must have the rank of each tensor")
        need(_distinct(dims), f"a factor of {kind} must occur only once in a tensor")
    used = {factor for dims in rule.tensors for dim in dims for factor in dim}
    need(used == set(range(len(rule.sizes))), f"the rule of {kind} must use every factor")


def fits(rule: Rule, shapes: Iterable[tuple[int, ...]]) -> bool:
    """Return whether, in every dimension, the sizes of the factors multiply to the extent."""
    return all(
        math.prod(rule.sizes[factor] for factor in dim) == extent
        for dims, shape in zip(rule.tensors, shapes, strict=True)
        for dim, extent in zip(dims, shape, strict=True)
    )


def _distinct(dims: Dims) -> bool:
    factors = list(chain.from_iterable(dims))
    return len(set(factors)) == len(factors)
