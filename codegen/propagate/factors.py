"""Visit one op: compute the shardings that propagate between its tensors.

A sharding is projected onto the factors of the op's rule, axes are moved along factors, and the
result is written back. This is the aggressive strategy of Shardy's propagation: axes propagate
along a factor as far as no two tensors disagree on it. If two factors compete for one axis in one
tensor, the factor whose axes come from the larger tensor wins; in a tie, the factor whose axes come
from the earlier tensor wins. Without conflicts the result equals that of the basic strategy.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from shardwright.codegen.propagate.parts import (
    AxisPart,
    Parts,
    common,
    dividing,
    merged,
    overlap,
    size_of,
    without,
)
from shardwright.ir.program import Dims, Rule

# The sides from which axes may propagate: none, operands, results, both.
NONE, FORWARD, BACKWARD, BOTH = 0, 1, 2, 3


class Dim(NamedTuple):
    """The current split of a dimension. `open`: whether it may be split further."""

    axes: Parts
    open: bool


class TensorState(NamedTuple):
    """The current sharding of a tensor. Axes in `fixed` must not split any dimension."""

    dims: tuple[Dim, ...]
    fixed: Parts = ()  # replicated explicitly, unreduced, or reserved for a later priority


class Conflict(NamedTuple):
    """Axes that a factor could not get in a tensor. `winner`: the factor that has them there."""

    tensor: int
    factor: int
    axes: Parts
    winner: int | None  # None if the axes are fixed


class AxisMove(NamedTuple):
    """Axes that a tensor received along a factor. `source`: the first of the op's tensors that had
    them."""

    tensor: int
    factor: int
    axes: Parts
    source: int


class Visit(NamedTuple):
    """The result of a visit. `states`: the state of each operand, followed by that of each
    result."""

    states: tuple[TensorState, ...]
    moves: tuple[AxisMove, ...]
    conflicts: tuple[Conflict, ...]


class _Along(NamedTuple):
    """The axes to move along a factor. `source`: the largest tensor that has these axes; `first`:
    the first tensor that has them."""

    factor: int
    axes: Parts
    source: int
    first: int


class _Tensor:
    """One tensor with its sharding projected onto factors."""

    def __init__(self, dims: Dims, state: TensorState, sizes: tuple[int, ...]) -> None:
        self.dims, self.state = dims, state
        self.axes: dict[int, Parts] = {}
        self.overflow: dict[int, Parts] = {}  # axes after `axes`, which do not divide the factor
        self.before: dict[int, tuple[int, ...]] = {}  # earlier factors of its dimension
        self.open: dict[int, bool] = {}
        self.last: set[int] = set()  # minor-most factors; axes need not divide their sizes
        self.size = math.prod(sizes[factor] for dim in dims for factor in dim)
        for factors, dim in zip(dims, state.dims, strict=True):
            self._project(factors, dim, sizes)

    def _project(self, factors: tuple[int, ...], dim: Dim, sizes: tuple[int, ...]) -> None:
        left = list(dim.axes)
        for place, factor in enumerate(factors):
            minor_most = place == len(factors) - 1
            mine = left if minor_most else _taken(left, sizes[factor])
            self.axes[factor] = merged(mine)
            left = [] if minor_most else left
            whole = size_of(mine) == sizes[factor]
            self.overflow[factor] = () if minor_most or whole else tuple(left)
            left = left if whole else []
            self.before[factor], self.open[factor] = factors[:place], dim.open
            if minor_most:
                self.last.add(factor)

    def extended(self, along: _Along, sizes: tuple[int, ...]) -> tuple[Parts, list[Conflict]]:
        """Return the axes that this tensor can add along a factor, and conflicts for the axes that
        it cannot add."""
        factor = along.factor
        if not self.open[factor] or self.overflow[factor]:
            return (), []
        _, mine, wanted = common(self.axes[factor], along.axes)
        if mine or not wanted or any(self.overflow[other] for other in self.before[factor]):
            return (), []
        got = without(wanted, self._held(factor))
        lost = [] if got == wanted else self._conflicts(along, wanted[len(got) :] or wanted)
        if factor not in self.last:
            size, parts = sizes[factor], size_of(self.axes[factor])
            got = dividing(got, size // parts if size % parts == 0 else 1)
        return got, lost

    def within(self, along: _Along) -> _Along:
        """Return a copy of `along` with only the axes that this tensor can take."""
        has = self.axes[along.factor]
        _, _, wanted = common(has, along.axes)
        if not wanted:
            return along
        more = without(wanted, self._held(along.factor)) if self.open[along.factor] else ()
        return along._replace(axes=merged((*has, *more)))

    def _held(self, factor: int) -> list[AxisPart]:
        """Return the axes that already split the tensor along any factor, and the axes that must
        not split it."""
        held = [part for axes in self.axes.values() for part in axes]
        held += [part for axes in self.overflow.values() for part in axes]
        return [*held, *self.state.fixed]

    def _conflicts(self, along: _Along, lost: Parts) -> list[Conflict]:
        winners = [
            factor
            for factor, axes in (*self.axes.items(), *self.overflow.items())
            if any(overlap(part, other) for part in lost for other in axes)
        ]
        winner = winners[0] if winners else None
        return [Conflict(-1, along.factor, lost, winner)]

    def written(self, sizes: tuple[int, ...]) -> TensorState:
        """Return the tensor's new state. A factor splits a dimension only if all earlier factors of
        that dimension are fully split."""
        dims = []
        for factors, dim in zip(self.dims, self.state.dims, strict=True):
            axes: list[AxisPart] = []
            for factor in factors:
                axes += (*self.axes[factor], *self.overflow[factor])
                if size_of(self.axes[factor]) != sizes[factor]:
                    break
            dims.append(Dim(merged(axes), dim.open))
        return TensorState(tuple(dims), self.state.fixed)


def _taken(left: list[AxisPart], size: int) -> list[AxisPart]:
    """Remove from the start of `left` the axes that split a factor of this size, and return them.
    The last of them may be part of an axis, whose rest stays in `left`."""
    mine: list[AxisPart] = []
    while left and size > 1:
        part = left[0]
        fitting = math.gcd(size, part.size)
        if fitting == 1:
            break
        mine.append(AxisPart(part.axis, part.low, part.low * fitting))
        left[:1] = [AxisPart(part.axis, part.low * fitting, part.high)] * (fitting < part.size)
        size //= fitting
        if size > 1 and fitting < part.size:
            break
    return mine


def visit(
    rule: Rule,
    states: tuple[TensorState, ...],
    directions: tuple[int, ...],
    elementwise: bool = False,
) -> Visit:
    """Move axes along the factors of a rule. `directions`: for each factor, whether axes come from
    operands, results or both.

    In an elementwise op the result decides: a factor gets only axes that the result can take, and
    factors with more shards come first.
    """
    sizes = rule.sizes
    tensors = [_Tensor(d, s, sizes) for d, s in zip(rule.tensors, states, strict=True)]
    moves: list[AxisMove] = []
    conflicts: list[Conflict] = []
    for wanted in _in_order(rule, tensors, directions, elementwise):
        along = tensors[-1].within(wanted) if elementwise else wanted
        for index, tensor in enumerate(tensors):
            if along.factor not in tensor.axes:
                continue
            got, lost = tensor.extended(along if index + 1 < len(tensors) else wanted, sizes)
            conflicts += [conflict._replace(tensor=index) for conflict in lost]
            if got:
                tensor.axes[along.factor] = merged((*tensor.axes[along.factor], *got))
                moves.append(AxisMove(index, along.factor, got, along.first))
    after = tuple(tensor.written(sizes) for tensor in tensors)
    real = tuple(move for move in moves if after[move.tensor] != states[move.tensor])
    return Visit(after, real, tuple(conflicts))


def _in_order(
    rule: Rule, tensors: list[_Tensor], directions: tuple[int, ...], elementwise: bool
) -> list[_Along]:
    """Return the axes to move along each factor. Axes from larger tensors come first (in an
    elementwise op, axes with more shards), and in a tie axes from earlier tensors."""
    found = [
        along
        for factor, direction in enumerate(directions)
        if (along := _along(factor, direction, len(rule.operands), tensors)) is not None
    ]
    if elementwise:
        return sorted(found, key=lambda a: (-size_of(a.axes), a.source, a.factor))
    return sorted(found, key=lambda a: (-tensors[a.source].size, a.source, a.factor))


def _along(factor: int, direction: int, operands: int, tensors: list[_Tensor]) -> _Along | None:
    """Return the longest list of axes along a factor that no tensor contradicts, with the tensors
    that have it, or None if no axes can move in this direction."""
    if direction == NONE:
        return None
    having = [
        (index, tensor)
        for index, tensor in enumerate(tensors)
        if factor in tensor.axes and direction & (FORWARD if index < operands else BACKWARD)
    ]
    axes = _compatible([tensor.axes[factor] for _, tensor in having])
    if not axes:
        return None
    sources = [
        (-tensor.size, index)
        for index, tensor in having
        if not common(tensor.axes[factor], axes)[2]
    ]
    return _Along(factor, axes, min(sources)[1], sources[0][1])


def _compatible(sequences: list[Parts]) -> Parts:
    """Return the longest of several sequences if all others are prefixes of it, otherwise their
    longest common prefix."""
    best: Parts = ()
    for axes in sequences:
        shared, mine, others = common(best, axes)
        best = best if not others else axes if not mine else shared
    for axes in sequences:
        shared, mine, others = common(best, axes)
        best = shared if mine and others else best
    return best
