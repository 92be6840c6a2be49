"""The pass that computes equal values once, so that one move serves the uses of all of them.

Ops of one body are equal if they have the same kind, params and dtypes, equal operands, and results
with equal shardings. The first of them stays, and the others are removed. Some equal ops stay:

- Ops whose results are larger than their operands, such as broadcasts, since operands are cheaper
  to move than results, and ops that depend on no argument, since nothing moves for them.
- Ops whose results are scalars that are not floats, such as indices: a module folds each into the
  slice that uses it.
- Ops in different layers of a model, so that the layers remain alike.
- Ops in different calls of the user's functions whose tensors are whole on every device, since
  nothing moves for them, so that the calls remain alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from shardwright.codegen.ops.calls import CALLBACK, OPAQUE
from shardwright.codegen.ops.fills import FLOATS
from shardwright.codegen.partition.local.axes import cut_axes
from shardwright.codegen.partition.local.costs import tied
from shardwright.codegen.partition.local.in_use import in_use
from shardwright.codegen.partition.local.steps import item_bytes
from shardwright.ir.mesh import Mesh
from shardwright.ir.program import Body, Op, Program

KEPT = frozenset({*OPAQUE, "optimization_barrier", CALLBACK})
"""Kinds of ops that are never removed. A barrier asks the compiler to keep equal values apart."""


def with_equal_ops_once(program: Program, mesh: Mesh) -> Program:
    """Return a program in which equal ops are computed once."""
    once = _Once(program, mesh)
    body = once.body(program.body, once.layers())
    return replace(program, body=body) if once.source else program


class _Once:
    """Remove equal ops. `source`: maps each result of a removed op to the value that replaces it;
    `same`: maps each value to the first value equal to it."""

    def __init__(self, program: Program, mesh: Mesh) -> None:
        self.program, self.values = program, program.values
        self.axes = cut_axes(program, mesh)
        self.source: dict[int, int] = {}
        self.same: dict[int, int] = {}

    def layers(self) -> dict[int, tuple[int, int]]:
        """Return two numbers for the index of each op of the program's body that is in a layer:
        that of the repeated stretch, and that of the copy of it that contains the op."""
        return {
            place: (number, copy)
            for number, each in enumerate(tied(self.program, self.axes))
            for offset in range(each.period)
            for copy, place in enumerate(each.places(offset))
        }

    def body(self, body: Body, layers: Mapping[int, tuple[int, int]]) -> Body:
        """Return a body that computes equal ops once. `layers`: the layer of each op, by its
        index."""
        ops: list[Op] = []
        first: dict[object, Op] = {}
        varied = set(body.arguments)  # values that depend on an argument
        for place, op in enumerate(body.ops):
            operands = tuple(self.source.get(value, value) for value in op.operands)
            bodies = tuple(self.body(inner, {}) for inner in op.bodies)
            own = replace(op, operands=operands, bodies=bodies)
            if bodies or not varied.isdisjoint(operands):
                varied.update(op.results)
            key = layers.get(place), self._key(own, place)
            equal = first.setdefault(key, own)
            self.same.update(zip(op.results, equal.results, strict=True))
            if self._is_local(own, equal):
                calls = self.values[op.results[0]].calls
                equal = first.setdefault((calls, *key), own)
            if equal is not own and varied.issuperset(op.results) and not self._stays(op):
                self.source.update(zip(op.results, equal.results, strict=True))
                continue
            ops.append(own)
        results = tuple(self.source.get(value, value) for value in body.results)
        body = replace(body, results=results)
        return replace(body, ops=tuple(in_use(body, ops)))

    def _key(self, op: Op, place: int) -> object:
        """Return a key that only equal ops share. Params are compared as text, which tells 0.0 from
        -0.0."""
        if op.kind in KEPT or op.bodies or op.rule is not None:
            return place
        operands = tuple(self.same.get(value, value) for value in op.operands)
        results = ((self.values[v].dtype, self.values[v].sharding) for v in op.results)
        return op.kind, str(op.params), operands, *results

    def _stays(self, op: Op) -> bool:
        """Return whether an op stays even if it is equal to an earlier op, because its results are
        larger than its operands, or are scalars that are not floats."""
        results = [self.values[value] for value in op.results]
        if all(value.shape == () and value.dtype not in FLOATS for value in results):
            return True
        return self._bytes(op.results) > self._bytes(op.operands)

    def _is_local(self, op: Op, equal: Op) -> bool:
        """Return whether an op and an equal one are in different calls of the user's functions, and
        their tensors are whole on every device."""
        tensors = [self.values[value] for value in (*op.operands, *op.results)]
        if any(value.sharding is not None and value.sharding.used() for value in tensors):
            return False
        return self.values[op.results[0]].calls != self.values[equal.results[0]].calls

    def _bytes(self, tensors: Sequence[int]) -> int:
        own = [self.values[value] for value in tensors]
        return sum(value.size * item_bytes(value.dtype) for value in own)
