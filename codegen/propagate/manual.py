"""Add the nodes of a manual computation, outside and inside a `shard_map`.

Outside, an operand is constrained to the specified sharding. Inside, tensors are local along the
manual axes, which therefore cannot split them; along the other axes, shardings propagate in and
out.
"""

from __future__ import annotations

from collections.abc import Callable

from shardwright.codegen.ops.build import Builder, Shape
from shardwright.codegen.propagate.factors import Dim, TensorState
from shardwright.codegen.propagate.graph import Graph, Node, Role
from shardwright.codegen.propagate.loops import identity
from shardwright.codegen.propagate.parts import AxisPart, part_of
from shardwright.ir.errors import InternalError
from shardwright.ir.program import Body, Op, Program, Rule
from shardwright.ir.sharding import Sharding


def manual_nodes(
    op: Op,
    program: Program,
    graph: Graph,
    of: Callable[[int], int],
    body: Callable[[Body], None],
) -> None:
    """Add the nodes of a manual computation and of its body. `of`: a function that returns the slot
    of a value; `body`: a function that adds the nodes of a body."""
    (inner,) = op.bodies
    sides = [_shardings(op, name) for name in ("in_shardings", "out_shardings")]
    name = program.values[op.results[0]].name if op.results else op.kind

    def cross(side: str, number: int, sharding: Sharding, outside: int, inside: int) -> None:
        shapes = program.values[outside].shape, program.values[inside].shape
        mesh = program.meshes.index(sharding.mesh)
        crossing = _Crossing(op, sharding, graph, shapes, mesh, f"{side} {number} of {name}")
        crossing.add(of(outside), of(inside), inward=side == "argument")

    for i, sharding in enumerate(sides[0]):
        cross("argument", i, sharding, op.operands[i], inner.arguments[i])
    body(inner)
    for i, sharding in enumerate(sides[1]):
        cross("result", i, sharding, op.results[i], inner.results[i])


def _shardings(op: Op, name: str) -> tuple[Sharding, ...]:
    given = op.param(name)
    if not isinstance(given, tuple):
        raise InternalError(f"{name} of a manual computation is {given!r}")
    return tuple(item for item in given if isinstance(item, Sharding))


class _Crossing:
    """One tensor at the border of a manual computation: global outside, local inside."""

    def __init__(
        self,
        op: Op,
        sharding: Sharding,
        graph: Graph,
        shapes: tuple[Shape, Shape],
        mesh: int,
        name: str,
    ) -> None:
        names = op.param("manual_axes")
        sizes = sharding.mesh.sizes
        self.graph, self.mesh, self.name = graph, mesh, name
        self.outer, self.inner = shapes
        self.axes = [tuple(part_of(ref, sizes) for ref in dim.axes) for dim in sharding.dims]
        listed = names if isinstance(names, tuple) else ()
        self.manual = tuple(AxisPart(str(name), 1, sizes[str(name)]) for name in listed)

    def add(self, outside: int, inside: int, *, inward: bool) -> None:
        """Add the nodes of the crossing. Manual axes stay fixed on both sides; other axes
        propagate. `inward`: whether the tensor is an argument."""
        state = self.graph.states[inside]
        self.graph.states[inside] = TensorState(state.dims, (*state.fixed, *self.manual))
        self.graph.meshes[inside] = self.mesh
        constrained = self.graph.slot(self._asked(), self.mesh)
        self.graph.names[constrained] = self.name
        rule = identity(self.outer, 1)
        slots = (outside, constrained) if inward else (constrained, outside)
        through = (constrained, inside) if inward else (inside, constrained)
        steps = [(rule, slots, Role.PASS), (self._rule(inward), through, Role.EDGE)]
        for step, tensors, role in steps if inward else reversed(steps):
            number = len(self.graph.nodes)
            node = Node(number, step, tensors, role, True, None, "manual")
            self.graph.add(node, tensors[1:])

    def _asked(self) -> TensorState:
        """Return the state of the tensor outside: its dimensions are split along manual axes as
        specified, and open for other axes."""
        used = {part for axes in self.axes for part in axes}
        fixed = tuple(part for part in self.manual if part not in used)
        return TensorState(tuple(Dim(axes, True) for axes in self.axes), fixed)

    def _rule(self, inward: bool) -> Rule:
        """Return the rule between the two sides. Outside, a dimension's manual axes split a
        separate factor, which is major to the factor of the local dimension."""
        shapes = (self.outer, self.inner) if inward else (self.inner, self.outer)
        build = Builder((shapes[0],), (shapes[1],))
        outer = 0 if inward else 1
        for dim, local in enumerate(self.inner):
            if self.axes[dim]:
                build.factor(self.outer[dim] // max(local, 1), {outer: dim}, kind="blocked")
            build.factor(local, {0: dim, 1: dim})
        return build.rule()
