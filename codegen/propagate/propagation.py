"""Propagation as nested loops over user priorities, op priorities, and visits.

Shardings of priority 0 propagate through the whole program first, then those of priority 1, and so
on. A dimension of a lower priority is closed and without axes until its turn. Until then, its axes
must not split any other dimension of its tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from shardwright.codegen.ops.table import ELEMENTWISE
from shardwright.codegen.propagate.applied import apply_constraints
from shardwright.codegen.propagate.factors import Dim, TensorState, Visit, visit
from shardwright.codegen.propagate.graph import Graph, Node, ShardingCopy
from shardwright.codegen.propagate.groups import with_agreed_groups
from shardwright.codegen.propagate.order import Level, directions, sweep
from shardwright.codegen.propagate.parts import minus, ref_of
from shardwright.codegen.propagate.program_graph import graph_of
from shardwright.codegen.propagate.trail import Trail, TrailEntry, copy_entry
from shardwright.ir.program import Op, Program
from shardwright.ir.sharding import DimSharding, Sharding


@dataclass(frozen=True)
class Propagated:
    """A program whose values have propagated shardings."""

    program: Program
    trail: Trail


def propagate(program: Program, until: int | None = None) -> Propagated:
    """Return the program with a sharding for every value. `until`: the last user priority to
    propagate, by default the lowest.

    Before propagation, constraints are applied to their operands, and groups are made
    consistent.
    """
    program, constrained = apply_constraints(program)
    program, alike = with_agreed_groups(program)
    return _Propagation(program, until).run((*constrained, *alike))


class _Propagation:
    """One propagation. Visits are cached by rule, states and directions, because layers repeat."""

    def __init__(self, program: Program, until: int | None) -> None:
        self.program, self.until = program, until
        self.graph: Graph = graph_of(program)
        self.known: dict[tuple[object, ...], Visit] = {}
        self.entries: list[TrailEntry] = []
        self.user = 0

    def run(self, copies: tuple[ShardingCopy, ...]) -> Propagated:
        for copy in copies:
            self._noted(copy)
        kept = self._hidden()
        for priority in sorted({0, *(p for _, _, p, _ in kept)}):
            if self.until is not None and priority > self.until:
                break
            self.user = priority
            for slot, dim, own, axes in kept:
                if own == priority:
                    self._shown(slot, dim, axes)
            for level in Level:
                sweep(self.graph, lambda node, at=level: self._visit(node, at))  # type: ignore[misc]
        return Propagated(self._written(), Trail(self.program, self.graph, tuple(self.entries)))

    def _noted(self, copy: ShardingCopy) -> None:
        """Record a copied sharding in the trail, with each dimension at its own user priority."""
        source, target = (self.graph.slots[value] for value in (copy.source, copy.target))
        op = Op(copy.kind, (copy.source,), (copy.target,), line=copy.line)
        dims = self.graph.states[target].dims
        given = self.program.values[copy.target].sharding
        for index, dim in enumerate(given.dims if given is not None else ()):
            axes = tuple(own.axes if i == index else () for i, own in enumerate(dims))
            entry = copy_entry((source, target), axes, op, dim.priority or 0, Level.PASS_ONCE)
            self.entries.append(entry)

    def _hidden(self) -> list[tuple[int, int, int, Dim]]:
        """Empty the dimensions of lower priorities, and return them as (slot, dimension, priority,
        contents)."""
        kept: list[tuple[int, int, int, Dim]] = []
        for slot, sharding in enumerate(self.graph.given):
            for index, dim in enumerate(sharding.dims if sharding is not None else ()):
                if dim.priority:
                    state = self.graph.states[slot]
                    kept.append((slot, index, dim.priority, state.dims[index]))
                    fixed = (*state.fixed, *state.dims[index].axes)
                    dims = _with(state.dims, index, Dim((), False))
                    self.graph.states[slot] = TensorState(dims, fixed)
        return kept

    def _shown(self, slot: int, index: int, dim: Dim) -> None:
        state = self.graph.states[slot]
        fixed = minus(state.fixed, dim.axes)
        self.graph.states[slot] = TensorState(_with(state.dims, index, dim), fixed)

    def _visit(self, node: Node, level: Level) -> list[int]:
        meshes = self.graph.meshes_of(node)
        along = directions(node, level)
        if len(meshes) != 1 or not any(along):  # nothing propagates between meshes
            return []
        states = tuple(self.graph.states[slot] for slot in node.tensors)
        key = (id(node.rule), along, node.kind in ELEMENTWISE, states)
        found = self.known.get(key)
        if found is None:
            elementwise = node.kind in ELEMENTWISE and len(node.tensors) == node.operands + 1
            found = self.known[key] = visit(node.rule, states, along, elementwise)
        if not found.moves:
            return []
        changed: dict[int, None] = {}
        for slot, state in zip(node.tensors, found.states, strict=True):
            if self.graph.states[slot] != state and slot not in changed:
                self.graph.states[slot] = state
                (self.graph.meshes[slot],) = meshes
                changed[slot] = None
        if changed:
            self.entries.append(TrailEntry(node, found, self.user, level))
        alike = [other for slot in changed for other in self._copied(slot, level)]
        return [*changed, *alike]

    def _copied(self, slot: int, level: Level) -> Iterator[int]:
        """Copy the sharding of a changed slot to the other slots of its group, and yield the slots
        that change."""
        state = self.graph.states[slot]
        for other in self.graph.alike.get(slot, ()):
            if self.graph.states[other] != state:
                axes = tuple(dim.axes for dim in state.dims)
                op = Op("alike", (), ())
                self.entries.append(copy_entry((slot, other), axes, op, self.user, level))
                self.graph.copy(slot, other)
                yield other

    def _written(self) -> Program:
        values = [
            replace(value, sharding=self._sharding(slot))
            for slot, value in zip(self.graph.slots, self.program.values, strict=True)
        ]
        results = tuple(map(self._sharding, self.graph.results))
        return replace(self.program, values=tuple(values), results=results)

    def _sharding(self, slot: int) -> Sharding | None:
        """Return the sharding of a slot, or None if the program has no mesh. A slot without a mesh
        is replicated on the first mesh."""
        if not self.program.meshes:
            return None
        state = self.graph.states[slot]
        home = self.program.meshes[self.graph.meshes[slot] or 0]
        sizes = home.sizes
        dims = tuple(
            DimSharding(tuple(ref_of(part, sizes) for part in dim.axes), dim.open)
            for dim in state.dims
        )
        given = self.graph.given[slot]
        said = (given.replicated, given.unreduced) if given is not None else ((), ())
        return Sharding(home, dims, *said)


def _with(dims: Sequence[Dim], index: int, dim: Dim) -> tuple[Dim, ...]:
    return (*dims[:index], dim, *dims[index + 1 :])
