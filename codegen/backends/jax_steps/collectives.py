"""Changes of dimensions as statements: slices, all-to-alls and all-gathers of padded shards.

A plan of one exchange performs every change with a separate collective, along a separate dimension,
because XLA moves parts in smaller units when it cuts or joins them along an inner dimension. A step
of a longer plan is one collective."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from shardwright.codegen.backends.jax_steps.axes import ProgramAxes
from shardwright.codegen.backends.jax_steps.boxes import ids_name
from shardwright.codegen.backends.jax_steps.changes import MatchedChanges, StepChange
from shardwright.codegen.backends.jax_steps.statements import Statement
from shardwright.codegen.moves.at_once import AtOnce, Turning
from shardwright.codegen.moves.basis.digits import Digits
from shardwright.codegen.moves.network import passes
from shardwright.codegen.moves.network.collectives import positions_of_groups
from shardwright.codegen.moves.network.passes import Laid, Standing
from shardwright.codegen.moves.xla import Collective
from shardwright.codegen.ops.collective_text import collective_call
from shardwright.ir.algebra.index import Integers
from shardwright.ir.axes import axes_text
from shardwright.ir.exchange import ids_of
from shardwright.ir.layout import Layout
from shardwright.ir.mesh import Mesh
from shardwright.ir.sharding import Operator

Form = Literal["apart", "together", "outermost"]
"""How changes are performed. "apart": every change with a separate collective. "together": all
all-to-alls with one collective, and all gathers with one. "outermost": like "together", but gathers
work on a first dimension, created if necessary."""


@dataclass(frozen=True)
class OverDigits:
    """Collectives over digits of mesh positions.

    `source`: the mesh whose device ids are in SOURCE_IDS; `ids`: the device ids, by rank; `axes`:
    None if the meshes list their devices in different orders, because the program then has no mesh
    axes; `itemsize`: the bytes of an element.
    """

    source: Mesh
    ids: Integers
    axes: ProgramAxes | None
    itemsize: int

    def index(self, digits: Digits) -> str:
        """Return the expression for the number formed by digits of this device's position."""
        names = None if self.axes is None else self.axes.over(digits)
        if names is None:
            return f"number_of({digits}, lax.axis_index(AXES))"
        return f"lax.axis_index({axes_text(names)})"

    def collective(
        self, mesh: Mesh, op: str, digits: Digits, *dims: int, tiled: bool = True
    ) -> Statement:
        """Return the statement that calls `lax.op` over the axes for digits of mesh positions or,
        if the program has no such axes, among groups of devices."""
        names = None if self.axes is None else self.axes.over(digits)
        axes = "AXES" if names is None else axes_text(names)
        function, arguments = collective_call(op, "x", axes, *dims, tiled=tiled)
        if names is None:
            inside = [str(self.ids.size), *map(str, digits)]
            if self.axes is None:
                inside.append(f"ids={ids_name(mesh, self.source)}")
            arguments.append(f"axis_index_groups=groups_along({', '.join(inside)})")
        return Statement(function, tuple(arguments))

    def slice(self, change: StepChange, size: int) -> Statement:
        """Return the statement that keeps this device's part, of extent `size`, of a dimension."""
        # XLA can prove more about where a slice starts if indices cannot be negative.
        more = (f"axis={change.axis}", "allow_negative_indices=False")
        how = ("x", f"{self.index(change.digits)} * {size}", str(size), *more)
        return Statement("lax.dynamic_slice_in_dim", how)

    def ask(self, mesh: Mesh, op: str, elements: int, digits: Digits) -> Collective:
        """Return a collective over digits as XLA runs it. `elements`: the size of its result."""
        groups = positions_of_groups(digits, self.ids.size)
        if self.axes is None:
            groups = np.searchsorted(self.ids, ids_of(mesh))[groups]
        return Collective(op, elements * self.itemsize, groups.tolist())


@dataclass
class Changed:
    """The statements so far that change the dimensions of a shard. `shape`: the shape of `x` after
    them; `asked`: their collectives; `laid`: collectives and slices, to count passes over
    memory."""

    over: OverDigits
    mesh: Mesh
    shape: list[int]
    statements: list[Statement] = field(default_factory=list)
    asked: list[Collective] = field(default_factory=list)
    laid: list[Laid] = field(default_factory=list)

    @staticmethod
    def of(
        over: OverDigits, before: Layout, after: Layout, moves: MatchedChanges, form: Form
    ) -> Changed:
        """Return the statements that perform changes between two layouts."""
        made = Changed(over, before.mesh, list(before.local_shape))
        made.pad(before, after)
        for change in moves.slices:
            made.slice(change)
        if form == "apart":
            for axis, old in moves.all_to_alls:
                made.exchange_apart(axis, old)
            # Gather last along the dimension whose parts are contiguous in memory: the last step
            # gathers the most, and along this dimension it needs no transpose.
            for change in sorted(moves.all_gathers, key=lambda change: -change.axis):
                made.gather_apart(change)
        else:
            made.exchange(moves.all_to_alls)
            made.gather(moves.all_gathers, outermost=form == "outermost")
        made.cut(after.local_shape)
        return made

    def pad(self, before: Layout, after: Layout) -> None:
        """Pad the dimensions that are to be cut into shards of equal size."""
        ends, self.shape = self.shape, padded(before, after)
        widths = tuple((0, size - own) for size, own in zip(self.shape, ends, strict=True))
        if any(end for _, end in widths):
            self._add("jnp.pad", "x", str(widths))
            self._lay_slice()

    def slice(self, change: StepChange) -> None:
        """Keep this device's part of a dimension."""
        self.shape[change.axis] //= change.count
        self.statements.append(self.over.slice(change, self.shape[change.axis]))
        self._lay_slice()

    def exchange_apart(self, split: int, old: StepChange) -> None:
        """Move digits from one dimension to dimension `split`, along a separate dimension."""
        joined, count = old.axis, old.count
        self.laid.append(passes.exchanged(self.shape, split, joined, count, "apart"))
        self.shape[split] //= count
        self._add("x.reshape", *map(str, [*self.shape[:split], count, *self.shape[split:]]))
        self._call("all_to_all", old.digits, split, joined, tiled=False)
        self.shape[joined] *= count
        self._add("x.reshape", *map(str, self.shape))
        self._ask("all-to-all", old.digits)

    def exchange(self, pairs: Sequence[tuple[int, StepChange]]) -> None:
        """Move digits between (gaining, losing) pairs of dimensions by one all-to-all."""
        if not pairs:
            return
        self.laid.append(_exchanged(self.shape, pairs))
        digits = tuple(pair for _, old in pairs for pair in old.digits)
        if len(pairs) == 1:
            ((axis, old),) = pairs
            self.shape[axis] //= old.count
            self.shape[old.axis] *= old.count
            self._call("all_to_all", digits, axis, old.axis)
        else:
            turns = self._at_once([old for _, old in pairs], [axis for axis, _ in pairs])
            self._turn(turns.before)
            self._call("all_to_all", digits, 0, 0)
            self._turn(turns.after)
        self._ask("all-to-all", digits)

    def gather_apart(self, change: StepChange) -> None:
        """Gather the parts of a dimension. Unless it is outermost, gather whole shards along a new
        dimension, which a reshape joins."""
        is_outermost = math.prod(self.shape[: change.axis]) == 1
        self._call("all_gather", change.digits, change.axis, tiled=is_outermost)
        before = tuple(self.shape)
        self.shape[change.axis] *= change.count
        if not is_outermost:
            self._add("x.reshape", *map(str, self.shape))
        self._ask("all-gather", change.digits)
        self.laid.append(passes.gathered(before, self.shape))

    def gather(self, changes: Sequence[StepChange], *, outermost: bool) -> None:
        """Gather the parts of several dimensions by one all-gather."""
        if not changes:
            return
        digits = tuple(pair for change in changes for pair in change.digits)
        before = tuple(self.shape)
        if len(changes) == 1 and not (outermost and changes[0].axis):
            (change,) = changes
            self.shape[change.axis] *= change.count
            self._call("all_gather", digits, change.axis)
        else:
            turns = self._at_once(changes, [])
            self._call("all_gather", digits, 0, tiled=False)
            self._turn(turns.after)
        self._ask("all-gather", digits)
        # passes over memory that reorder data gathered along several dimensions at once
        is_last = any(change.axis == len(self.shape) - 1 for change in changes)
        turned = 0 if len(changes) == 1 else 1 + is_last
        self.laid.append(passes.gathered(before, self.shape, turned))

    def reduce(self, operator: Operator, digits: Digits) -> None:
        """Reduce terms, one on each device of a group, and leave the result on all of them."""
        self._call(f"p{operator}", digits)
        self._ask("all-reduce", digits)
        self.laid.append(Laid("sum", math.prod(self.shape)))

    def scatter(self, operator: Operator, change: StepChange, *, outermost: bool) -> None:
        """Reduce terms and leave one part of the result, along a dimension, on each device of a
        group. A sum is one collective. For other operators, every device receives all terms of its
        shard in an all-to-all, along a new dimension, and reduces them."""
        axis, count = change.axis, change.count
        self.shape[axis] //= count
        parted = list(map(str, [*self.shape[:axis], count, *self.shape[axis:]]))
        turned = operator == "sum" and self._is_turned(axis)
        op, times = "reduce-scatter", 1
        if operator == "sum" and axis and outermost:
            op, times = "all-reduce", count
            self._call("psum", change.digits)
            self.statements.append(self.over.slice(change, self.shape[axis]))
        elif turned:
            self._add("x.reshape", *parted)
            self._add("jnp.moveaxis", "x", str(axis), "0")
            self._call("psum_scatter", change.digits, 0, tiled=False)
        elif operator == "sum":
            self._call("psum_scatter", change.digits, axis)
        else:
            op, times = "all-to-all", count
            self._add("x.reshape", *parted)
            self._call("all_to_all", change.digits, axis, axis, tiled=False)
            self._add(f"jnp.{operator}", "x", f"axis={axis}")
        elements = math.prod(self.shape)
        self.asked.append(self.over.ask(self.mesh, op, elements * times, change.digits))
        self.laid.append(Laid("sum", elements, turned=int(turned)))

    def _is_turned(self, axis: int) -> bool:
        """Return whether sums are scattered along a new first dimension instead of `axis`.

        To scatter along the last dimension, the TPU compiler often uses an all-reduce, which moves
        twice as much. For one-byte elements it always does, and moves their padding too.
        """
        return 0 < axis == len(self.shape) - 1 and self.over.itemsize > 1

    def cut(self, shape: Sequence[int]) -> None:
        """Cut off the padding of gathered dimensions."""
        for axis, size in enumerate(shape):
            if self.shape[axis] > size:
                self._add("lax.slice_in_dim", "x", "0", str(size), f"axis={axis}")
                self.shape[axis] = size
                self._lay_slice()

    def _at_once(self, changes: Sequence[StepChange], gaining: Sequence[int]) -> AtOnce:
        """Return how to reorder data before and after one collective. `gaining`: the dimension that
        gains the digits of each change, or () for a gather."""
        dims = range(len(self.shape))
        counts = [change.count for change in changes]
        gained = [[n for n, axis in enumerate(gaining) if axis == dim] for dim in dims]
        lost = [[n for n, change in enumerate(changes) if change.axis == dim] for dim in dims]
        return AtOnce.of(self.shape, counts, gained, lost)

    def _turn(self, turn: Turning) -> None:
        self._add("x.reshape", *map(str, turn.split))
        self._add("x.transpose", *map(str, turn.order))
        self._add("x.reshape", *map(str, turn.shape))
        self.shape = [*turn.shape]

    def _add(self, function: str, *arguments: str) -> None:
        self.statements.append(Statement(function, arguments))

    def _call(self, op: str, digits: Digits, *dims: int, tiled: bool = True) -> None:
        made = self.over.collective(self.mesh, op, digits, *dims, tiled=tiled)
        self.statements.append(made)

    def _ask(self, op: str, digits: Digits) -> None:
        self.asked.append(self.over.ask(self.mesh, op, math.prod(self.shape), digits))

    def _lay_slice(self) -> None:
        self.laid.append(Laid("slice", math.prod(self.shape)))


def padded(before: Layout, after: Layout) -> list[int]:
    """Return the shape of a shard, padded so that it can be cut into shards of equal size."""
    sides = before.dims[before.hidden :], after.dims[after.hidden :]
    return [
        max(size, new.size * (new.parts // old.parts))
        for size, old, new in zip(before.local_shape, *sides, strict=True)
    ]


def _exchanged(shape: list[int], pairs: Sequence[tuple[int, StepChange]]) -> Laid:
    if len(pairs) == 1:
        ((gains, old),) = pairs
        return passes.exchanged(shape, gains, old.axis, old.count, "tiled")
    places = [(Standing.of(shape, gains), Standing.of(shape, old.axis)) for gains, old in pairs]
    split, joined = (max(each) for each in zip(*places, strict=True))
    parts = (shape[gains] // old.count for gains, old in pairs)
    keeps = 1 not in (*shape, *parts)
    return Laid("all-to-all", math.prod(shape), split, joined, "several", keeps_floats=keeps)
