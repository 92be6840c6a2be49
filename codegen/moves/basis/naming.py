"""Convert states of the basis to shardings, and paths to the steps of a plan."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from shardwright.codegen.moves.basis.digits import Digits
from shardwright.codegen.moves.basis.graph import Basis, State, StateMove
from shardwright.codegen.moves.holders import Loads, choose_rule
from shardwright.codegen.moves.move import Move
from shardwright.ir import axes as algebra
from shardwright.ir.axes import AxisRef
from shardwright.ir.exchange import Exchange, HolderRule
from shardwright.ir.layout import DimLayout, Layout, Split
from shardwright.ir.mesh import Digit, Mesh
from shardwright.ir.reduction import Reduction
from shardwright.ir.refs import refs_of
from shardwright.ir.sharding import DimSharding, Operator, Sharding
from shardwright.ir.steps import Ends, MoveStep, ReduceStep

Named = tuple[State, Sharding, Split]
"""A state, its sharding, and the split of its uneven dimensions."""


@dataclass(frozen=True)
class Naming:
    """Converts the states of one basis to shardings."""

    basis: Basis

    def steps(self, moves: Iterable[StateMove]) -> tuple[MoveStep | ReduceStep, ...]:
        """Return the steps of a path from the source to the target."""
        reshard, moves = self.basis.reshard, tuple(moves)
        splits: tuple[Split, Split] = (
            split_of(reshard.source_split),
            split_of(reshard.target_split),
        )
        middle: Split = splits[0] if splits[0] == splits[1] else "flat"
        before: Named = (self.basis.start, reshard.source, splits[0])
        if not moves and (splits[0] != splits[1] or self._is_cut_otherwise(before)):
            moves = (Move("permute", (), self.basis.goal),)
        found = []
        for number, move in enumerate(moves, 1):
            if number == len(moves):
                after: Named = (move.after, reshard.target, splits[1])
            else:
                after = (move.after, self.sharding(move.after), middle)
            found.append(self._step(move, before, after))
            before = after
        return tuple(found)

    def _is_cut_otherwise(self, source: Named) -> bool:
        """Return whether source and target differ in their shards although both have the same
        state. A nested split depends on the axes, which the digits of a state may merge."""
        goal: Named = (self.basis.goal, self.basis.reshard.target, source[2])
        pairs = zip(self._layout(source).dims, self._layout(goal).dims, strict=True)
        return any(
            not np.array_equal(one, other)
            for a, b in pairs
            for one, other in zip(a.intervals, b.intervals, strict=True)
        )

    def _step(self, move: StateMove, before: Named, after: Named) -> MoveStep | ReduceStep:
        held = after[0] if move.op == "slice" else before[0]
        mesh = (after if move.op == "slice" else before)[1].mesh
        axes = self.axes(move.axes, mesh, held.layer)
        ends = Ends(axes, before[1], after[1], before[2], after[2])
        layouts = self._layout(before), self._layout(after)
        if move.op in ("reduce_scatter", "all_reduce"):
            places = _places(move.axes), _places(after[0].unreduced)
            reduction = Reduction(*layouts, *places, self._operator)
            return ReduceStep(move.op, ends, reduction)  # type: ignore[arg-type]
        rule = choose_rule(Loads(*layouts, Exchange(*layouts, HolderRule())))
        return MoveStep(move.op, ends, Exchange(*layouts, rule))  # type: ignore[arg-type]

    @property
    def _operator(self) -> Operator:
        return self.basis.reshard.source.operator

    def _layout(self, named: Named) -> Layout:
        """Return the layout of a state. Dimensions are split by the digits of its sharding, on
        which a nested split depends."""
        state, sharding, split = named
        hidden = tuple(DimLayout(digit.size, (digit,)) for digit in _places(state.unreduced))
        dims = tuple(
            DimLayout(extent, sharding.digits(dim), split)
            for dim, extent in enumerate(self.basis.reshard.shape)
        )
        used = (*(pair for digits in state.dims for pair in digits), *state.unreduced)
        free = tuple(reversed(_places(self.basis.free(used))))
        return Layout(sharding.mesh, hidden + dims, free, len(hidden))

    def sharding(self, state: State) -> Sharding:
        """Return the sharding of a state, on the first mesh that can express it: a mesh of the
        reshard, or a mesh with one axis."""
        for mesh in self._meshes(state.layer):
            found = [refs_of(mesh, digits) for digits in (*state.dims, state.unreduced)]
            named = [refs for refs in found if refs is not None]
            if len(named) == len(found):
                dims = tuple(DimSharding(refs) for refs in named[:-1])
                return Sharding(mesh, dims, unreduced=named[-1], operator=self._operator)
        raise AssertionError("a mesh of one axis names every state")

    def axes(self, digits: Digits, mesh: Mesh, layer: int) -> tuple[AxisRef, ...]:
        """Return the axes and sub-axes of the digits of a step, on `mesh` if it can express
        them, else on the first mesh that can."""
        for candidate in (mesh, *self._meshes(layer)):
            refs = refs_of(candidate, digits)
            if refs is not None:
                return algebra.merged(refs, candidate.sizes)
        raise AssertionError("a mesh of one axis names every digit")

    def _meshes(self, layer: int) -> tuple[Mesh, ...]:
        meshes = self.basis.meshes(layer)
        one = Mesh({"devices": self.basis.size}, meshes[0].device_ids)
        return (*meshes, one)


def _places(digits: Digits) -> tuple[Digit, ...]:
    return tuple(Digit(*pair) for pair in digits)


def split_of(text: str) -> Split:
    """Return `text` as a split: "nested", or else "flat"."""
    return "nested" if text == "nested" else "flat"
