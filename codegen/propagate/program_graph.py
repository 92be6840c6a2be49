"""Build the graph over which the shardings of a program propagate."""

from __future__ import annotations

from collections import Counter

from shardwright.codegen.ops.table import kind_of
from shardwright.codegen.propagate.factors import Dim, TensorState
from shardwright.codegen.propagate.graph import Graph, Node, Role
from shardwright.codegen.propagate.groups import by_member
from shardwright.codegen.propagate.loops import Loops, identity, open_state
from shardwright.codegen.propagate.manual import manual_nodes
from shardwright.codegen.propagate.parts import part_of
from shardwright.codegen.propagate.rules import rule_of
from shardwright.ir.program import Body, Op, Program
from shardwright.ir.sharding import Sharding


def state_of(sharding: Sharding | None, rank: int) -> TensorState:
    """Convert a sharding to a state, without its priorities."""
    if sharding is None:
        return open_state(rank)
    sizes = sharding.mesh.sizes
    dims = tuple(
        Dim(tuple(part_of(ref, sizes) for ref in dim.axes), dim.open) for dim in sharding.dims
    )
    fixed = (*sharding.replicated, *sharding.unreduced)
    return TensorState(dims, tuple(part_of(ref, sizes) for ref in fixed))


def graph_of(program: Program) -> Graph:
    """Return the graph of a program: its nodes in order, and the slots of all values and
    results."""
    return _Make(program).run()


class _Make:
    def __init__(self, program: Program) -> None:
        self.program, self.values = program, program.values
        self.graph = Graph()
        self.loops = Loops(self.graph)
        self.slot: dict[int, int] = {}
        self.alias: dict[int, int] = {}  # argument of an inner body -> operand
        self.uses: Counter[int] = Counter()

    def run(self) -> Graph:
        self._count(self.program.body)
        self.uses.update(member for group in self.program.groups for member in group)
        for value in self.program.body.arguments:
            self.of(value)
        self._body(self.program.body)
        self._results()
        self._groups()
        self.graph.slots = [self.of(value) for value in range(len(self.values))]
        return self.graph

    def of(self, value: int) -> int:
        value = self.alias.get(value, value)
        if value not in self.slot:
            self.slot[value] = self._new(self.values[value].sharding, self._shape(value))
        return self.slot[value]

    def _new(self, sharding: Sharding | None, shape: tuple[int, ...]) -> int:
        mesh = None if sharding is None else self.program.meshes.index(sharding.mesh)
        return self.graph.slot(state_of(sharding, len(shape)), mesh, sharding)

    def _shape(self, value: int) -> tuple[int, ...]:
        return self.values[value].shape

    def _count(self, body: Body) -> None:
        """Count the uses of every value. Uses of a branch's arguments count for the operands of its
        op, and uses of a recomputation's results for the results of its body."""
        for op in body.ops:
            shared = {"cond": op.operands[1:], "remat": op.operands}.get(op.kind, ())
            own = [self.alias.get(v, v) for v in op.operands]
            for inner in op.bodies if shared else ():
                self.alias.update(zip(inner.arguments, own[-len(shared) :], strict=True))
            for operand in own[: len(own) - len(shared)]:
                self.uses[operand] += 1
            for inner in op.bodies:
                self._count(inner)
            if op.kind == "remat":
                self._share_results(op)
        for result in body.results:
            self.uses[self.alias.get(result, result)] += 1

    def _share_results(self, op: Op) -> None:
        """Make the results of a recomputation share the slots of its body's results, without
        counting a use."""
        for result, inner in zip(op.results, op.bodies[0].results, strict=True):
            self.alias[result] = self.alias.get(inner, inner)
            self.uses[self.alias[result]] -= 1

    def _once(self, op: Op) -> bool:
        """Return whether an op is the only user of each of its operands other than scalars."""
        tensors = [self.alias.get(v, v) for v in op.operands if self._shape(v)]
        return all(self.uses[v] == 1 for v in tensors)

    def _body(self, body: Body) -> None:
        for op in body.ops:
            match op.kind:
                case "scan":
                    self._scan(op)
                case "while":
                    self._while(op)
                case "cond":
                    self._cond(op)
                case "remat":
                    self._body(op.bodies[0])
                case "manual":
                    self._manual(op)
                case _:
                    self._op(op)

    def _op(self, op: Op) -> None:
        rule = rule_of(op, self.values)
        if rule is None or not rule.sizes:
            for value in op.results:
                self.of(value)
            return
        role = Role.OTHER
        if kind_of(op.kind).is_elementwise or kind_of(op.kind).passes:
            role = Role.PASS
        elif op.kind == "broadcast_in_dim":
            role = Role.BROADCAST
        tensors = tuple(self.of(value) for value in (*op.operands, *op.results))
        node = Node(len(self.graph.nodes), rule, tensors, role, self._once(op), op, op.kind)
        self.graph.add(node, tensors[len(op.operands) :])

    def _groups(self) -> None:
        slots = (tuple(dict.fromkeys(map(self.of, group))) for group in self.program.groups)
        self.graph.alike = by_member(slots)

    def _share(self, *values: int) -> None:
        slot = self.of(values[0])
        for value in values[1:]:
            self.slot[value] = slot

    def _scan(self, op: Op) -> None:
        (body,) = op.bodies
        consts, carries, xs = op.integers("lengths")
        last = consts + carries
        stacks = [self.graph.slot(open_state(len(self._shape(v)))) for v in op.operands[last:]]
        for result, argument in zip(op.results, body.arguments[consts:last], strict=False):
            self._share(argument, result)
        for argument in body.arguments[: consts + xs]:
            self.uses[argument] += 1  # each iteration passes the argument on to the next
        for stack, operand, argument in zip(
            stacks, op.operands[last:], body.arguments[last:], strict=True
        ):
            self.loops.sliced(stack, self.of(argument), self._shape(operand))
        self._body(body)
        written = [
            (result, self.loops.stacked(self.of(part), self.of(result), self._shape(result)))
            for part, result in zip(body.results[carries:], op.results[carries:], strict=True)
        ]
        for stack, operand in zip(stacks, op.operands[last:], strict=True):
            self.loops.edge((self.of(operand),), stack, self._shape(operand))
        for i, argument in enumerate(body.arguments[:last]):
            back = () if i < consts else (self.of(body.results[i - consts]),)
            sources = (self.of(op.operands[i]), *back)
            self.loops.edge(sources, self.of(argument), self._shape(argument))
        for result, after in written:
            self.loops.edge((after,), self.of(result), self._shape(result))

    def _while(self, op: Op) -> None:
        cond, body = op.bodies
        cond_consts, body_consts = op.integers("lengths")
        carried = op.operands[cond_consts + body_consts :]
        loop = zip(
            op.results, cond.arguments[cond_consts:], body.arguments[body_consts:], strict=True
        )
        for result, tested, argument in loop:
            self._share(argument, tested, result)
        consts = (*cond.arguments[:cond_consts], *body.arguments[:body_consts])
        for argument in consts:
            self.uses[argument] += 1
        self._body(cond)
        self._body(body)
        for operand, argument in zip(op.operands, consts, strict=False):
            self.loops.edge((self.of(operand),), self.of(argument), self._shape(argument))
        for operand, back, result in zip(carried, body.results, op.results, strict=True):
            sources = (self.of(operand), self.of(back))
            self.loops.edge(sources, self.of(result), self._shape(result))

    def _cond(self, op: Op) -> None:
        for branch in op.bodies:
            self._body(branch)
        for i, result in enumerate(op.results):
            sources = [self.of(branch.results[i]) for branch in op.bodies]
            self.loops.edge(sources, self.of(result), self._shape(result))

    def _manual(self, op: Op) -> None:
        manual_nodes(op, self.program, self.graph, self.of, self._body)

    def _results(self) -> None:
        for value, sharding in zip(self.program.body.results, self.program.results, strict=True):
            shape = self._shape(value)
            slot = self._new(sharding, shape)
            self.graph.results.append(slot)
            tensors = (self.of(value), slot)
            node = Node(-1, identity(shape, 1), tensors, Role.EDGE, False, None, "return")
            self.graph.returns.append(node)
