"""The order of visits, and how far each may move shardings at each op priority.

The order is part of the contract, since an early visit can block a later one. For each op priority
in turn:

1. from each result of the program to the value that is returned there, and back;
2. every node once in the order of the program, from a stack: when a visit changes a tensor, the
   nodes that define and read it go on top, unless they are on the stack already; the node that was
   visited does not;
3. results again.

When a visit changes a member of a group, its sharding is copied to the other members at once, the
last one first, overwriting theirs; the nodes that define and read these go on the stack too.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable

from shardwright.codegen.propagate.factors import BACKWARD, BOTH, NONE
from shardwright.codegen.propagate.graph import Graph, Node, Role
from shardwright.ir.program import Rule


class Level(enum.IntEnum):
    """The op priorities, highest first. Each allows all that earlier ones do, and more."""

    PASS_ONCE = 0  # pass-through ops whose operands have no other users
    PASS = 1  # pass-through ops
    FACTORS = 2  # every pass-through factor; broadcasts only backward
    ANY = 3  # every factor; broadcasts only backward
    ALL = 4


def directions(node: Node, level: Level) -> tuple[int, ...]:
    """Return the sources of axes along each factor of a node."""
    return _directions(node.rule, node.role, node.once, level)


def _directions(rule: Rule, role: Role, once: bool, level: Level) -> tuple[int, ...]:
    special = {*rule.reduction, *rule.need_replication, *rule.permutation}
    along = []
    for factor in range(len(rule.sizes)):
        if factor in rule.blocked:
            along.append(NONE)
        elif role is Role.EDGE or level is Level.ALL:
            along.append(BOTH)
        elif role is Role.PASS:
            allowed = level >= Level.PASS or once
            along.append(BOTH if allowed else NONE)
        elif level < Level.FACTORS or (level is Level.FACTORS and factor in special):
            along.append(NONE)
        else:
            along.append(BACKWARD if role is Role.BROADCAST else BOTH)
    return tuple(along)


def sweep(graph: Graph, visit: Callable[[Node], Iterable[int]]) -> None:
    """Visit until nothing is left to do; `visit` returns the changed slots."""
    for node in graph.returns:
        visit(node)
    _drain(graph, visit)
    for node in graph.returns:
        visit(node)


def _drain(graph: Graph, visit: Callable[[Node], Iterable[int]]) -> None:
    stack: list[int] = list(range(len(graph.nodes) - 1, -1, -1))
    waiting = set(stack)
    while stack:
        index = stack.pop()
        waiting.discard(index)
        for slot in visit(graph.nodes[index]):
            for other in graph.touching(slot):
                if other != index and other not in waiting:
                    waiting.add(other)
                    stack.append(other)
