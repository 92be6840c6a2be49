"""The reason for each communication, in sentences about the user's values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from shardwright.codegen.moves.move import LayoutMove
from shardwright.codegen.ops.collectives import COLLECTIVES
from shardwright.codegen.ops.forms.form import FormMove
from shardwright.codegen.ops.layout import LocalLayout, Names
from shardwright.codegen.ops.table import kind_of
from shardwright.codegen.partition.local.assign import FactorAxes, Splits
from shardwright.codegen.partition.local.ports import Port
from shardwright.codegen.partition.local.sizes import size_text
from shardwright.codegen.propagate.parts import part_of
from shardwright.ir.program import Value

WHOLES = {"sum": "a sum", "max": "a maximum", "min": "a minimum"}

PADDING = {"slice": "without its padding", "pad": "with its padding"}

SUBJECTS = {"add_any": "a sum of gradients"}
"""Ops that no user writes, in words."""

Reason = Callable[[LayoutMove], str]


class OpReasons:
    """The reasons for communications of one op. `names`: the names of its tensors; `given`: the
    layouts in which each operand exists; `results`: its results, with their propagated
    shardings."""

    def __init__(
        self,
        splits: Splits,
        split: FactorAxes,
        names: tuple[str, ...],
        given: tuple[tuple[LocalLayout, ...], ...],
        results: tuple[Value, ...],
    ) -> None:
        self.splits, self.split, self.names, self.given = splits, split, names, given
        self.results = results
        self.kind = splits.op.kind
        self.subject = SUBJECTS.get(self.kind, self.kind)
        self.made = f"the result of {self.subject}"
        if self.kind in PADDING and results[0].version_of:
            self.subject = self.made = f"{results[0].version_of} {PADDING[self.kind]}"
        self.operands = len(splits.op.operands)

    def operand(self, place: int) -> Reason:
        """Return the function that says why an operand is moved before the op."""

        def reason(change: LayoutMove) -> str:
            if change.op in ("all_reduce", "reduce_scatter"):
                what = WHOLES[self._operator(place)].replace("a ", "a partial ", 1)
                terms = f"which is {what} over {quoted(change.axes)}"
                return f"{self.subject} needs the reduced value of {self.names[place]}, {terms}"
            if change.dims:
                return self._gathered(place, change)
            need = self.splits.layouts(self.split).operands[place]
            return f"{self.subject} takes {self.names[place]} as {need}"

        return reason

    def result(self, layout: LocalLayout) -> Reason:
        """Return the function that says why a result is moved to a layout after the op."""

        def reason(change: LayoutMove) -> str:
            if change.op not in ("all_reduce", "reduce_scatter"):
                return f"{self.made} must be {layout}"
            summed = self._summed_over(change.axes)
            terms = f"{self.made} is a partial sum over {quoted(change.axes)}"
            return summed or f"{terms} and must be {layout}"

        return reason

    def _summed_over(self, axes: Names) -> str:
        """Return the sentence about what the op adds up over some of `axes`, with the operands that
        are terms of a sum over others of them; "" if the op adds up nothing."""
        summed = [said for said, over in self._sums() if not {*over}.isdisjoint(axes)]
        left = {*axes} - {name for _, over in self._sums() for name in over}
        terms: list[str] = []
        for name, layouts in zip(self.names, self.given, strict=False):
            over = tuple(axis for axis in axes if axis in left and axis in layouts[0].partial)
            if over:
                terms.append(f"terms of {name} over {quoted(over)}")
                left -= {*over}
        return ", and ".join((*summed[:1], *terms)) if summed else ""

    def inside(self, move: FormMove) -> str:
        if self.kind in COLLECTIVES:
            return f"{self.kind} of {self.names[move.place]} in a shard_map, {move.what}"
        split = f"dimension {move.dim} split over {quoted(move.axes)}"
        return f"{self.subject} takes {self.names[move.place]} with {split}: {move.what}"

    def summed(self) -> Iterator[str]:
        """Yield one sentence per split factor that the op reduces."""
        return (said for said, _ in self._sums())

    def _sums(self) -> Iterator[tuple[str, Names]]:
        """Yield, for each split factor that the op reduces, a sentence and the factor's axes."""
        for factor in self.splits.reducing:
            over = self.split.factors[factor]
            places = self._places(factor, range(self.operands))
            if over and places:
                where = " and ".join(f"dimension {dim} of {name}" for name, dim in places)
                does = kind_of(self.kind).does
                yield f"{self.subject} {does} {where}, split over {quoted(over)}", over

    def _operator(self, place: int) -> str:
        return next((each.operator for each in self.given[place] if each.partial), "sum")

    def _gathered(self, place: int, change: LayoutMove) -> str:
        dim = change.dims[0]
        name = self.names[place]
        start = f"{self.subject} needs dimension {dim} of {name} whole"
        for axis in change.axes:
            for factor, own in enumerate(self.split.factors):
                if axis in own:
                    tensors = (*range(self.operands, len(self.names)), *range(self.operands))
                    other, at = next(iter(self._places(factor, tensors)), ("", 0))
                    return f"{start}: {quoted((axis,))} splits dimension {at} of {other} there"
        uneven = next(self._uneven(change.axes), None)
        if uneven is not None:
            return f"{start}: {uneven}"
        factors = self.splits.rule.operands[place][dim]
        if all(factor not in self.splits.free for factor in factors):
            return start
        alike = next(self._alike(place, factors, change.axes), None)
        if alike is None:
            axes = quoted(change.axes)
            return f"{start}: no other tensor of it is split over {axes} along this dimension"
        if any(factor in self.splits.reducing for factor in factors):
            instead = f"a sum over {quoted(change.axes)} instead would cost more in total"
        else:
            instead = "keeping them split would cost more in total"
        return f"{start}: {alike} is split over {quoted(change.axes)} along it too, {instead}"

    def _uneven(self, axes: Names) -> Iterator[str]:
        """Yield a sentence for each dimension of a result whose stated sharding names some of
        `axes` but does not divide its extent."""
        own = self.splits.axes
        for name, value in zip(self.names[self.operands :], self.results, strict=True):
            dims = () if value.sharding is None else value.sharding.dims
            for dim, (split, extent) in enumerate(zip(dims, value.shape, strict=False)):
                refs = [part_of(ref, own.mesh.sizes) for ref in split.axes]
                parts = math.prod(ref.high // ref.low for ref in refs)
                if extent % parts and not {*axes}.isdisjoint(own.names(refs)):
                    where = f"dimension {dim} of {name}"
                    yield f"{parts} does not divide the {extent} elements of {where}"

    def _alike(self, place: int, factors: tuple[int, ...], axes: Names) -> Iterator[str]:
        """Yield the names of other operands that `axes` split along one of `factors`."""
        for factor in factors:
            for tensor in range(self.operands):
                dims = self.splits.rule.operands[tensor]
                here = [dim for dim, own in enumerate(dims) if factor in own]
                split = (layout.dims[dim] for layout in self.given[tensor] for dim in here)
                if tensor != place and any({*axes} <= {*names} for names in split):
                    yield self.names[tensor]

    def _places(self, factor: int, tensors: tuple[int, ...] | range) -> list[tuple[str, int]]:
        return [
            (self.names[tensor], dim)
            for tensor in tensors
            for dim, factors in enumerate(self.splits.rule.tensors[tensor])
            if factor in factors
        ]


def plainly(text: str) -> Reason:
    """Return a function that gives the same reason for every change."""
    return lambda change: text


def settled(text: str, summed: str | None) -> Reason:
    """Return the function that says why a result is moved: `text`, and the reduction `summed`, if
    known, whose terms are added up."""
    if not summed:
        return plainly(text)

    def reason(change: LayoutMove) -> str:
        return f"{text}: {summed}" if change.op in ("all_reduce", "reduce_scatter") else text

    return reason


def port_reason(port: Port) -> str:
    """Say why a value is moved at the border of a loop or branch."""
    of, role = port.op.param("of"), port.op.param("role")
    if role == "tests":
        return f"the condition of {of} must be the same on every device"
    if role == "carries":
        return f"{of} carries it with this sharding"
    if of == "remat":
        return f"the recomputation {role} it with this sharding"
    return f"{of} {role} it with this sharding"


def after_loop(change: LayoutMove, turns: int | None) -> str:
    """Return the clause about a reduction that runs once after a loop instead of in each of its
    `turns` iterations, or "" for other changes."""
    if turns is None or change.op not in ("all_reduce", "reduce_scatter"):
        return ""
    op = change.op.replace("_", "-")
    return (
        f"; one {op} after the loop instead of {turns} in it, {size_text(turns * change.received)}"
    )


def quoted(names: Names) -> str:
    """Format axes in quotes, for a message: `"x", "y"`."""
    return ", ".join(f'"{name}"' for name in names)
