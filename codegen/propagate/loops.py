"""Add the nodes of control flow. Each edge of a loop has a single slot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from shardwright.codegen.ops.build import Builder
from shardwright.codegen.propagate.factors import Dim, TensorState
from shardwright.codegen.propagate.graph import Graph, Node, Role
from shardwright.ir.program import Rule

Shape = tuple[int, ...]


def open_state(rank: int) -> TensorState:
    """Return the state of an unknown sharding: every dimension is open and has no axes."""
    return TensorState((Dim((), True),) * rank)


def identity(shape: Shape, operands: int, results: int = 1) -> Rule:
    """Return the rule of tensors that have the same shape and the same sharding."""
    build = Builder((shape,) * operands, (shape,) * results)
    for dim, extent in enumerate(shape):
        build.factor(extent, dict.fromkeys(range(operands + results), dim))
    return build.rule()


class Loops:
    """Add the nodes of control flow for which the program has no op."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def node(
        self, rule: Rule, tensors: Iterable[int], role: Role, kind: str, *, once: bool = False
    ) -> None:
        """Append a node. `tensors`: the slots of its operands, then the slots of its results."""
        slots = tuple(tensors)
        node = Node(len(self.graph.nodes), rule, slots, role, once, None, kind)
        self.graph.add(node, slots[len(rule.operands) :])

    def edge(self, sources: Iterable[int], target: int, shape: Shape) -> None:
        """Make the slots `sources` and the slot `target` propagate to each other as a single
        tensor."""
        given = tuple(dict.fromkeys(s for s in sources if s != target))
        self.node(identity(shape, len(given)), (*given, target), Role.EDGE, "edge")

    def sliced(self, whole: int, part: int, shape: Shape) -> None:
        """Add the nodes with which an iteration reads its element along the first dimension of
        `whole`: a slice and a reshape."""
        one = (1, *shape[1:])
        cut = self.graph.slot(open_state(len(shape)))
        self.node(_first_cut(shape, one), (whole, cut), Role.PASS, "dynamic_slice")
        self.node(_first_gone(one), (cut, part), Role.PASS, "reshape", once=True)

    def stacked(self, part: int, whole: int, shape: Shape) -> int:
        """Add the nodes with which an iteration writes its element along the first dimension of
        `whole`. Return the slot of the written tensor."""
        one = (1, *shape[1:])
        wide, after = (self.graph.slot(open_state(len(shape))) for _ in range(2))
        self.node(_first_new(one), (part, wide), Role.BROADCAST, "broadcast_in_dim")
        rule = _first_written(shape, one)
        self.node(rule, (whole, wide, after), Role.PASS, "dynamic_update_slice", once=True)
        return after


def _rest(shape: Shape) -> Iterator[tuple[int, int]]:
    return ((dim, extent) for dim, extent in enumerate(shape) if dim > 0)


def _first_cut(shape: Shape, one: Shape) -> Rule:
    build = Builder((shape,), (one,))
    build.factor(shape[0], {0: 0, 1: 0}, kind="pass" if shape == one else "blocked")
    for dim, extent in _rest(shape):
        build.factor(extent, {0: dim, 1: dim})
    return build.rule()


def _first_gone(one: Shape) -> Rule:
    build = Builder((one,), (one[1:],))
    build.factor(1, {0: 0})
    for dim, extent in _rest(one):
        build.factor(extent, {0: dim, 1: dim - 1})
    return build.rule()


def _first_new(one: Shape) -> Rule:
    build = Builder((one[1:],), (one,))
    build.factor(1, {1: 0})
    for dim, extent in _rest(one):
        build.factor(extent, {0: dim - 1, 1: dim})
    return build.rule()


def _first_written(shape: Shape, one: Shape) -> Rule:
    build = Builder((shape, one), (shape,))
    build.factor(shape[0], {0: 0, 2: 0})
    build.factor(1, {1: 0}, kind="need_replication")
    for dim, extent in _rest(shape):
        build.factor(extent, {0: dim, 1: dim, 2: dim})
    return build.rule()
