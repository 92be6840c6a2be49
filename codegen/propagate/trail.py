"""The reasons for shardings: every change that propagation made, with the conflicts that it won or
lost."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from shardwright.codegen.propagate.factors import AxisMove, Conflict, Visit
from shardwright.codegen.propagate.graph import Graph, Node, Role
from shardwright.codegen.propagate.loops import identity
from shardwright.codegen.propagate.order import Level
from shardwright.codegen.propagate.parts import AxisPart, Parts, overlap, ref_of
from shardwright.ir.program import Op, Program, Value


@dataclass(frozen=True)
class TrailEntry:
    """A visit that changed a tensor. `user`, `level`: its user priority and op priority."""

    node: Node
    visit: Visit
    user: int
    level: Level


def copy_entry(
    slots: tuple[int, int], axes: tuple[Parts, ...], op: Op, user: int, level: Level
) -> TrailEntry:
    """Return the trail entry for a sharding copied from one slot to another."""
    rule = identity((1,) * len(axes), 1)
    node = Node(-1, rule, slots, Role.EDGE, False, op, op.kind)
    moves = (AxisMove(1, dim, parts, 0) for dim, parts in enumerate(axes) if parts)
    return TrailEntry(node, Visit((), tuple(moves), ()), user, level)


@dataclass(frozen=True)
class Change:
    """Axes that a dimension of a tensor received, where they came from, the op, and the priorities
    of the visit."""

    value: str  # the tensor that received the axes
    dim: int
    axes: str
    kind: str  # the kind of the op
    line: str  # the line of the op in the user's code
    factor: int
    source: str  # the tensor from which the axes came
    user_priority: int
    op_priority: Level
    conflicts: tuple[str, ...]

    def __str__(self) -> str:
        where = f" ({self.line})" if self.line else ""
        lost = "".join(f"; {conflict}" for conflict in self.conflicts)
        return (
            f"{_named(self.value)} dimension {self.dim} got {self.axes} from {_named(self.source)} "
            f"through {self.kind}{where}, priority p{self.user_priority}, "
            f"op priority {int(self.op_priority)}{lost}"
        )


@dataclass(frozen=True)
class Trail:
    """All changes, in order."""

    program: Program
    graph: Graph
    entries: tuple[TrailEntry, ...]

    def why(self, name: str) -> tuple[Change, ...]:
        """Return the changes by which a value received its sharding, latest first.

        The changes lead from the value back to arguments, constraints or results whose sharding was
        given.
        """
        slot = self.graph.slots[self.program.values.index(self.program.value(name))]
        found: dict[tuple[int, int], Change] = {}
        wanted = [(slot, part) for dim in self.graph.states[slot].dims for part in dim.axes]
        for number in range(len(self.entries) - 1, -1, -1):
            for place, move in enumerate(self.entries[number].visit.moves):
                tensors = self.entries[number].node.tensors
                if any(tensors[move.tensor] == s and _meets(move.axes, p) for s, p in wanted):
                    found[number, place] = self._change(self.entries[number], move)
                    wanted += [(tensors[move.source], part) for part in move.axes]
        return tuple(found.values())

    def origins(self, name: str) -> dict[str, str]:
        """Return, for each axis of a value's sharding, the name of the value or result from which
        it came."""
        slot = self.graph.slots[self.program.values.index(self.program.value(name))]
        return {
            self._said(slot, part): self._origin(slot, part)
            for dim in self.graph.states[slot].dims
            for part in dim.axes
        }

    def _origin(self, slot: int, part: AxisPart) -> str:
        for entry in reversed(self.entries):
            for move in entry.visit.moves:
                if entry.node.tensors[move.tensor] == slot and _meets(move.axes, part):
                    slot = entry.node.tensors[move.source]
        return self._name(slot)

    def _change(self, entry: TrailEntry, move: AxisMove) -> Change:
        node = entry.node
        dims = node.rule.tensors[move.tensor]
        dim = next(i for i, factors in enumerate(dims) if move.factor in factors)
        line = "" if node.op is None or node.op.line is None else str(node.op.line)
        conflicts = tuple(self._conflict(entry, move, c) for c in entry.visit.conflicts)
        return Change(
            self._name(node.tensors[move.tensor]),
            dim,
            self._listed(node.tensors[move.tensor], move.axes),
            node.kind,
            line,
            move.factor,
            self._name(node.tensors[move.source]),
            entry.user,
            entry.level,
            tuple(text for text in conflicts if text),
        )

    def _conflict(self, entry: TrailEntry, move: AxisMove, conflict: Conflict) -> str:
        """Describe a conflict of a visit if the given change won or lost it in its tensor, or
        return ""."""
        if conflict.tensor != move.tensor:
            return ""
        axes = self._listed(entry.node.tensors[move.tensor], conflict.axes)
        if conflict.factor == move.factor:
            return f"could not have {axes}, which are taken"
        won = conflict.winner == move.factor
        return f"won {axes} over factor {conflict.factor}" if won else ""

    def _listed(self, slot: int, axes: Parts) -> str:
        return ", ".join(self._said(slot, part) for part in axes)

    def _said(self, slot: int, part: AxisPart) -> str:
        mesh = self.program.meshes[self.graph.meshes[slot] or 0]
        return str(ref_of(part, mesh.sizes))

    def _name(self, slot: int) -> str:
        for value, own in self._named():
            if own == slot:
                return value.name
        if slot in self.graph.results:
            return f"result {self.graph.results.index(slot)}"
        return self.graph.names.get(slot, "loop")

    def _named(self) -> Iterator[tuple[Value, int]]:
        return zip(self.program.values, self.graph.slots, strict=True)


def _named(name: str) -> str:
    """Return a name as it appears in a sentence: with `%` if it is the name of a value."""
    return f"%{name}" if re.fullmatch(r"[\w.]+", name) else name


def _meets(axes: Parts, part: AxisPart) -> bool:
    return any(overlap(other, part) for other in axes)
