"""The graph over which shardings propagate: nodes, each with a rule over slots, and a state for
each slot.

A slot is a tensor with one sharding: a value, a result of the program, or all values on one edge of
a loop (such as a carry, inside and after the loop).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from shardwright.codegen.propagate.factors import TensorState
from shardwright.ir.program import Line, Op, Rule
from shardwright.ir.sharding import Sharding


@dataclass(frozen=True)
class ShardingCopy:
    """A sharding copied from one value to another before propagation. `source`, `target`: the
    numbers of these values in the program."""

    source: int
    target: int
    kind: str  # "constrain" or "alike"
    line: Line | None


class Role(Enum):
    """The property of an op that determines its priority."""

    PASS = "pass"  # elementwise ops, reshapes, transposes, …: visited first
    BROADCAST = "broadcast"  # propagates only from its result, except at the last level
    OTHER = "other"  # propagates along pass-through factors first, then along all factors
    EDGE = "edge"  # joins values that are one tensor; visited at every level


@dataclass(frozen=True)
class Node:
    """An op or an edge, along whose rule shardings propagate. `tensors`: its slots, operands
    first."""

    index: int  # in the order of the program
    rule: Rule
    tensors: tuple[int, ...]
    role: Role
    once: bool  # for each operand that has factors, whether this node is its only user
    op: Op | None = None  # None for an edge, or a slice made by a loop
    kind: str = ""

    @property
    def operands(self) -> int:
        return len(self.rule.operands)


@dataclass
class Graph:
    """All nodes in order, and for each slot the nodes to visit again when it changes.

    The mesh of a slot is that of its given sharding, or else of the first axes that it receives.
    """

    states: list[TensorState] = field(default_factory=list)
    meshes: list[int | None] = field(default_factory=list)  # slot -> index of its mesh
    given: list[Sharding | None] = field(default_factory=list)  # slot -> its given sharding
    names: dict[int, str] = field(default_factory=dict)  # names of slots without a value or result
    nodes: list[Node] = field(default_factory=list)
    returns: list[Node] = field(default_factory=list)  # from returned values to results
    owner: dict[int, int] = field(default_factory=dict)  # slot -> node that defines it
    users: dict[int, list[int]] = field(default_factory=dict)  # slot -> nodes that read it
    # slot -> the other slots in its group
    alike: dict[int, tuple[int, ...]] = field(default_factory=dict)
    slots: list[int] = field(default_factory=list)  # program value -> slot
    results: list[int] = field(default_factory=list)  # program result -> slot

    def slot(
        self, state: TensorState, mesh: int | None = None, given: Sharding | None = None
    ) -> int:
        self.states.append(state)
        self.meshes.append(mesh)
        self.given.append(given)
        return len(self.states) - 1

    def copy(self, source: int, target: int) -> None:
        self.states[target] = self.states[source]
        self.meshes[target] = self.meshes[source]
        self.given[target] = self.given[source]

    def meshes_of(self, node: Node) -> set[int]:
        """Return the meshes of a node's tensors. Tensors without a mesh do not count."""
        return {mesh for slot in node.tensors if (mesh := self.meshes[slot]) is not None}

    def add(self, node: Node, owned: Iterable[int]) -> None:
        """Append a node that defines the slots `owned` and reads the slots of its operands."""
        self.nodes.append(node)
        self.owner.update(dict.fromkeys(owned, node.index))
        for slot in dict.fromkeys(node.tensors[: node.operands]):
            self.users.setdefault(slot, []).append(node.index)

    def touching(self, slot: int) -> list[int]:
        """Return the nodes that a change of a slot affects: the node that defines it, then its
        readers in reverse order."""
        defining = [self.owner[slot]] if slot in self.owner else []
        return [*defining, *reversed(self.users.get(slot, []))]
