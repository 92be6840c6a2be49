"""The order of visits, and the directions in which shardings may move at each op priority.

The order is part of the contract, because an early visit can block a later one. At each op priority
in turn, these are visited:

1. every result of the program with the value returned there, in both directions;
2. every node once in the order of the program, from a stack: if a visit changes a tensor, the
   nodes that define and read it are pushed, unless they are on the stack already; the node just
   visited is not pushed;
3. the results again.

If a visit changes a member of a group, its sharding is copied at once to the other members, in
reverse order, replacing theirs; the nodes that define and read these are pushed too.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable

from shardwright.codegen.propagate.factors import BACKWARD, BOTH, NONE
from shardwright.codegen.propagate.graph import Graph, Node, Role
from shardwright.ir.program import Rule


class Level(enum.IntEnum):
    """The op priorities, highest first. Each priority allows everything that earlier ones allow."""

    PASS_ONCE = 0  # pass-through ops whose operands have no other users
    PASS = 1  # pass-through ops
    FACTORS = 2  # also every pass-through factor; broadcasts only backward
    ANY = 3  # also all other factors; broadcasts only backward
    ALL = 4


def directions(node: Node, level: Level) -> tuple[int, ...]:
    """Return, for each factor of a node, the sides from which axes may propagate at a level: NONE,
    FORWARD, BACKWARD or BOTH."""
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
    """Visit nodes until nothing changes. `visit`: a function that returns the changed slots."""
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
