"""Steps of a basis plan as statements: where possible, one tiled collective over axes per step.

A step over the minor-most digits of dimensions is a JAX collective if padded shards nest
(`planner/basis/boxed.py`), and a permute moves padded shards. Any other step moves boxes
(`support/xla_boxes.py`), according to its exchange or reduction, without padding. An in-place sum
is `lax.psum` for any shape, a maximum `lax.pmax`, a minimum `lax.pmin`. A reduce-scatter by maximum
or minimum is an all-to-all followed by a local reduction.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from shardwright.codegen.backends.jax_steps.at_once import StepChange, exchanged, gathered
from shardwright.codegen.backends.jax_steps.axes import ProgramAxes
from shardwright.codegen.backends.jax_steps.boxes import (
    StepBoxes,
    boxes_of,
    ids_name,
    ids_of_ends,
    pairs_of,
)
from shardwright.codegen.backends.jax_steps.changes import MatchedChanges
from shardwright.codegen.backends.jax_steps.collectives import among
from shardwright.codegen.backends.jax_steps.statements import (
    ZERO,
    OwnName,
    PythonValue,
    Statement,
)
from shardwright.codegen.moves.basis.boxed import dims_fit, fits, layouts_of
from shardwright.codegen.moves.basis.digits import Digits, tail
from shardwright.codegen.moves.basis.permutes import permuted
from shardwright.codegen.moves.basis.traffic import moved
from shardwright.codegen.moves.network import passes
from shardwright.codegen.moves.network.passes import Laid, Standing
from shardwright.codegen.moves.xla import Collective
from shardwright.codegen.spec.hlo.received import received_by
from shardwright.codegen.text.python_text import WIDTH
from shardwright.ir.algebra.index import Integers
from shardwright.ir.dtypes import DTYPES
from shardwright.ir.exchange import ids_of, positions_of, same_devices
from shardwright.ir.layout import DimLayout, Layout
from shardwright.ir.mesh import Mesh
from shardwright.ir.reduction import Reduction
from shardwright.ir.sharding import Operator
from shardwright.ir.steps import ReduceStep, Step

_BINARY: dict[Operator, str] = {"sum": "add", "max": "maximum", "min": "minimum"}


WIDENED = ("bfloat16",)
"""Float types that always move as integers: XLA on CPU slices padded arrays of these types in
float32, which changes NaNs."""


@dataclass(frozen=True)
class Block:
    """The statements of one step, which update `x`.

    `received`: the bytes that each rank receives; `asked`: the step's collectives.
    """

    statements: tuple[Statement, ...]
    received: Integers
    boxes: StepBoxes | None = None
    asked: tuple[Collective, ...] = ()  # the collectives; empty for a step that moves boxes
    laid: tuple[Laid, ...] = ()  # the operations, to count passes over memory
    is_padded: bool = True  # whether boxes leave zero padding in a shard

    @property
    def uses(self) -> frozenset[OwnName]:
        return frozenset(name for statement in self.statements for name in statement.uses)

    def lines(self, result: str = "x") -> Iterator[str]:
        """Yield the statements. The last one assigns `result`."""
        *first, last = self.statements
        for statement in first:
            yield from statement.lines("x")
        yield from last.lines(result)


@dataclass(frozen=True)
class Blocks:
    """Write the steps of one plan as statements.

    `axes`: None if the meshes list their devices in different orders, because the program then has
    no mesh axes. `outermost`: whether collectives work on a first dimension, created if necessary.
    XLA on CPU runs these fastest: along any other dimension it transposes element by element before
    and after. On CPU an all-reduce followed by a slice is also faster than a reduce-scatter along
    any other dimension, although it moves twice as much.
    """

    source: Mesh
    dtype: str
    ids: Integers  # by rank
    axes: ProgramAxes | None
    started: PythonValue = ZERO  # the initial value of a reduction
    empty: PythonValue = ZERO  # the value that stands for missing terms
    outermost: bool = False

    @property
    def itemsize(self) -> int:
        """The bytes of an element."""
        return DTYPES[self.dtype]

    def of(self, number: int, step: Step) -> Block:
        """Return the block for `step`, which is step `number` of its plan."""
        if isinstance(step, ReduceStep):
            return self._summed(number, step)
        before, after = step.exchange.source, step.exchange.target
        if self.axes is not None and _only_places(before, after):
            placed = Laid("slice", math.prod(after.local_shape))
            return Block((self._placed(before, after),), self._everywhere(0), laid=(placed,))
        if step.op == "permute" and fits(step):
            return self._permute(before, after)
        moves = self._moves(before, after)
        if moves is None:
            return self._by_boxes(number, step)
        made, asked, laid = self._collectives(before, after, moves)
        return self._block(made or [Statement("", ())], asked, laid)

    def _moves(self, before: Layout, after: Layout) -> MatchedChanges[StepChange] | None:
        moves = _matched(before, after)
        is_cut = (
            moves is not None and moves.slices and _padded([*before.local_shape], before, after)
        )
        if is_cut and self.dtype in WIDENED:
            return None
        if self.axes is None and moves is not None:
            same = same_devices(before.mesh, after.mesh)
            return moves if same and not moves.slices else None
        return moves

    def _permute(self, before: Layout, after: Layout) -> Block:
        ends = [self._ranks_of(layout) for layout in (before, after)]
        pairs = permuted(*ends)
        sends = [pair for pair in pairs if pair[0] != pair[1]]
        nbytes = math.prod(after.local_shape) * self.itemsize
        received = np.zeros(self.ids.size, dtype=np.int64)
        received[[receiver for _, receiver in sends]] = nbytes
        written = str([*map(tuple, pairs)])
        made = [Statement("lax.ppermute", ("x", "AXES", written), ("lax",))]
        if len(written) > WIDTH - 30:  # the rest of the line needs 30 characters
            permute = Statement("lax.ppermute", ("x", "AXES", "sends"), ("lax",))
            made = [self._sends(before, after), permute]
        asked = (Collective("collective-permute", nbytes, sends),) if sends else ()
        laid = (Laid("permute", math.prod(after.local_shape)),)
        return Block(tuple(made), received, asked=asked, laid=laid)

    def _sends(self, before: Layout, after: Layout) -> Statement:
        numbers = [
            pairs_of(tuple(digit for dim in layout.dims for digit in dim.digits))
            for layout in (before, after)
        ]
        named = [str(self.ids.size), *map(str, numbers)]
        if self.axes is None:
            named += [f"ids=({', '.join(ids_of_ends(before, after, self.source))})"]
        return Statement("sends_along", tuple(named), ("sends_along",), name="sends")

    def _ranks_of(self, layout: Layout) -> list[int]:
        """Return the number of each rank's shard."""
        number = np.zeros(self.ids.size, dtype=np.int64)
        positions = np.arange(self.ids.size, dtype=np.int64)
        if self.axes is None:
            positions = positions_of(layout.mesh, self.ids)
        for dim in layout.dims:
            number = number * dim.parts + dim.index(positions)
        return number.tolist()

    def _placed(self, before: Layout, after: Layout) -> Statement:
        """Return the statement that turns replicas into terms: the replica at coordinate 0 keeps
        its value, the others become `empty`."""
        digits = pairs_of(tuple(digit for dim in _new(before, after) for digit in dim.digits))
        index, uses = self._index(digits)
        arguments = (f"{index} == 0", "x", self.empty.text)
        return Statement("jnp.where", arguments, ("jnp", *uses, *self.empty.uses))

    def _index(self, digits: Digits) -> tuple[str, tuple[OwnName, ...]]:
        """Return the expression for the number formed by digits of this device's position, and the
        names that it uses."""
        names = None if self.axes is None else self.axes.over(digits)
        if names is None:
            return f"number_of({digits}, lax.axis_index(AXES))", ("number_of", "lax")
        return f"lax.axis_index({quoted(names)})", ("lax",)

    def _collectives(
        self, before: Layout, after: Layout, moves: MatchedChanges[StepChange]
    ) -> tuple[list[Statement], list[Collective], list[Laid]]:
        shape, asked, laid = list(before.local_shape), list[Collective](), list[Laid]()
        call = partial(self._collective, before.mesh)
        made = _padded(shape, before, after)
        laid += [Laid("slice", math.prod(shape))] * len(made)
        for change in moves.slices:
            shape[change.axis] //= change.count
            made.append(self._slice(change, shape[change.axis]))
            laid.append(Laid("slice", math.prod(shape)))
        laid += _exchanged(shape, moves.all_to_alls)
        if len(moves.all_to_alls) == 1:
            ((axis, old),) = moves.all_to_alls
            shape[axis] //= old.count
            shape[old.axis] *= old.count
            how = [f"split_axis={axis}", f"concat_axis={old.axis}", "tiled=True"]
            made.append(call("all_to_all", old.digits, how))
        elif moves.all_to_alls:
            made += exchanged(call, moves.all_to_alls, shape)
        if moves.all_to_alls:
            moved = tuple(pair for _, old in moves.all_to_alls for pair in old.digits)
            asked.append(self._ask(before.mesh, "all-to-all", math.prod(shape), moved))
        gathers = tuple(shape)
        if len(moves.all_gathers) == 1 and not (self.outermost and moves.all_gathers[0].axis):
            (change,) = moves.all_gathers
            shape[change.axis] *= change.count
            how = [f"axis={change.axis}", "tiled=True"]
            made.append(call("all_gather", change.digits, how))
        elif moves.all_gathers:
            made += gathered(call, moves.all_gathers, shape)
        if moves.all_gathers:
            gone = tuple(pair for change in moves.all_gathers for pair in change.digits)
            asked.append(self._ask(before.mesh, "all-gather", math.prod(shape), gone))
            turned = _turned(moves.all_gathers, len(shape))
            laid.append(passes.gathered(gathers, shape, turned))
        for axis, size in enumerate(after.local_shape):
            if shape[axis] > size:
                cut = ("x", "0", str(size), f"axis={axis}")
                made.append(Statement("lax.slice_in_dim", cut, ("lax",)))
                shape[axis] = size
                laid.append(Laid("slice", math.prod(shape)))
        return made, asked, laid

    def _ask(self, mesh: Mesh, op: str, elements: int, digits: Digits) -> Collective:
        asked = among(op, elements * self.itemsize, digits, self.ids.size)
        if self.axes is not None:
            return asked
        rank = np.searchsorted(self.ids, ids_of(mesh))
        return asked._replace(ends=rank[np.array(asked.ends)].tolist())

    def _slice(self, change: StepChange, size: int) -> Statement:
        index, uses = self._index(change.digits)
        # XLA can prove more about where a slice starts if indices cannot be negative.
        more = (f"axis={change.axis}", "allow_negative_indices=False")
        how = ("x", f"{index} * {size}", str(size), *more)
        return Statement("lax.dynamic_slice_in_dim", how, ("lax", *uses))

    def _collective(self, mesh: Mesh, op: str, digits: Digits, how: list[str]) -> Statement:
        """Return the statement that calls `lax.op` over the axes for digits of mesh positions or,
        if the program has no such axes, among groups of devices."""
        names = None if self.axes is None else self.axes.over(digits)
        if names is not None:
            return Statement(f"lax.{op}", ("x", quoted(names), *how), ("lax",))
        inside = [str(self.ids.size), *map(str, digits)]
        if self.axes is None:
            inside.append(f"ids={ids_name(mesh, self.source)}")
        groups = f"axis_index_groups=groups_along({', '.join(inside)})"
        return Statement(f"lax.{op}", ("x", "AXES", *how, groups), ("lax", "groups_along"))

    def _summed(self, number: int, step: ReduceStep) -> Block:
        before, after = step.reduction.before, step.reduction.after
        size = math.prod(after.local_shape) * self.itemsize
        count = step.reduction.count
        changes = changes_of(before, after)
        if changes == ():
            op = f"p{step.reduction.operator}"
            terms = pairs_of(step.reduction.terms)
            made = self._collective(before.mesh, op, terms, [])
            asked = self._ask(before.mesh, "all-reduce", math.prod(after.local_shape), terms)
            received = self._everywhere(2 * size * (count - 1) // count)
            laid = (Laid("sum", math.prod(after.local_shape)),)
            return Block((made,), received, asked=(asked,), laid=laid)
        if changes is None or not all(change.fits for change in changes):
            return self._by_boxes(number, step)
        (change,) = changes
        scattered = _padded(list(before.local_shape), before, after)
        elements = math.prod(after.local_shape)
        padded = [Laid("slice", elements * change.count)] * len(scattered)
        scattered += self._scattered(step.reduction, change)
        turned = step.reduction.operator == "sum" and self._is_turned(
            change.axis, len(after.local_shape)
        )
        summed = Laid("sum", elements, turned=int(turned))
        asked = self._ask(before.mesh, "reduce-scatter", elements, change.digits)
        if change.axis and self.outermost:
            asked = self._ask(before.mesh, "all-reduce", elements * count, change.digits)
        if step.reduction.operator != "sum":
            asked = self._ask(before.mesh, "all-to-all", elements * count, change.digits)
        return self._block(scattered, [asked], [*padded, summed])

    def _scattered(self, reduction: Reduction, change: StepChange) -> list[Statement]:
        """Return the statements of a reduce-scatter. A sum is one collective. For other operators,
        every device receives all terms of its shard in an all-to-all, along a new dimension, and
        reduces them."""
        axis, mesh = change.axis, reduction.before.mesh
        shape = list(reduction.after.local_shape)
        extents = tuple(map(str, [*shape[:axis], change.count, *shape[axis:]]))
        parted = Statement("x.reshape", extents)
        if reduction.operator == "sum" and axis and self.outermost:
            terms = self._collective(mesh, "psum", change.digits, [])
            return [terms, self._slice(change, shape[axis])]
        if reduction.operator == "sum" and self._is_turned(axis, len(shape)):
            how = ["scatter_dimension=0"]
            first = Statement("jnp.moveaxis", ("x", str(axis), "0"), ("jnp",))
            return [parted, first, self._collective(mesh, "psum_scatter", change.digits, how)]
        if reduction.operator == "sum":
            how = [f"scatter_dimension={axis}", "tiled=True"]
            return [self._collective(mesh, "psum_scatter", change.digits, how)]
        how = [f"split_axis={axis}", f"concat_axis={axis}"]
        return [
            parted,
            self._collective(mesh, "all_to_all", change.digits, how),
            Statement(f"jnp.{reduction.operator}", ("x", f"axis={axis}"), ("jnp",)),
        ]

    def _is_turned(self, axis: int, rank: int) -> bool:
        """Return whether sums are scattered along a new first dimension instead of `axis`.

        To scatter along the last dimension, the TPU compiler often uses an all-reduce, which moves
        twice as much. For one-byte elements it always does, and moves their padding too.
        """
        return 0 < axis == rank - 1 and self.itemsize > 1

    def _block(self, made: list[Statement], asked: list[Collective], laid: list[Laid]) -> Block:
        nbytes = sum(
            received_by(each.op, each.ends, each.nbytes, self.ids.size)[0] for each in asked
        )
        return Block(tuple(made), self._everywhere(nbytes), asked=tuple(asked), laid=tuple(laid))

    def _everywhere(self, nbytes: int) -> Integers:
        return np.full(self.ids.size, nbytes, dtype=np.int64)

    def _received(self, step: Step) -> Integers:
        (devices, elements), _ = moved(step)
        total = np.zeros(self.ids.size, dtype=np.int64)
        np.add.at(total, np.searchsorted(self.ids, devices), elements)
        return total * self.itemsize

    def _by_boxes(self, number: int, step: Step) -> Block:
        named = ["x", "AXES", str(self.ids.size)]
        named += [f"BEFORE_{number}", f"AFTER_{number}", f"SENDERS_{number}"]
        boxes = boxes_of(step, self.source)
        named += [f"ids=({', '.join(boxes.ids)})"] if self.axes is None else []
        empty, uses = ZERO, list[OwnName](["moved_by_boxes"])
        if isinstance(step, ReduceStep):
            uses.append("jnp")
            named += [f"reduce=jnp.{_BINARY[step.reduction.operator]}"]
            empty = self.started
        elif _new(step.exchange.source, step.exchange.target):
            empty = self.empty
        named += [f"empty={empty.text}"] if empty != ZERO else []
        moved = Statement("moved_by_boxes", tuple(named), (*uses, *empty.uses))
        laid = (Laid("boxes", math.prod(layouts_of(step)[1].local_shape)),)
        return Block((moved,), self._received(step), boxes, is_padded=empty == ZERO, laid=laid)


def _new(before: Layout, after: Layout) -> tuple[DimLayout, ...]:
    """Return the hidden dimensions that a step creates by turning replicas into terms, of which
    only the first has a value."""
    pairs = zip(before.dims[: before.hidden], after.dims[: after.hidden], strict=True)
    return tuple(new for old, new in pairs if old.extent < new.extent)


def _only_places(before: Layout, after: Layout) -> bool:
    pairs = zip(before.dims, after.dims, strict=True)
    stays = all(old == new or old.extent < new.extent for old, new in pairs)
    return stays and bool(_new(before, after))


def _padded(shape: list[int], before: Layout, after: Layout) -> list[Statement]:
    sides = before.dims[before.hidden :], after.dims[after.hidden :]
    ends = []
    for axis, (old, new) in enumerate(zip(*sides, strict=True)):
        size = max(shape[axis], new.size * (new.parts // old.parts))
        ends.append((0, size - shape[axis]))
        shape[axis] = size
    pad = Statement("jnp.pad", ("x", str(tuple(ends))), ("jnp",))
    return [pad] if any(end for _, end in ends) else []


def _exchanged(shape: list[int], pairs: tuple[tuple[int, StepChange], ...]) -> Iterator[Laid]:
    places = [(Standing.of(shape, gains), Standing.of(shape, old.axis)) for gains, old in pairs]
    if len(pairs) == 1:
        ((gains, old),) = pairs
        yield passes.exchanged(shape, gains, old.axis, old.count, "tiled")
    elif pairs:
        split, joined = (max(each) for each in zip(*places, strict=True))
        parts = (shape[gains] // old.count for gains, old in pairs)
        keeps = 1 not in (*shape, *parts)
        yield Laid("all-to-all", math.prod(shape), split, joined, "several", keeps_floats=keeps)


def _turned(changes: tuple[StepChange, ...], rank: int) -> int:
    """Return the number of passes over memory that reorder data gathered along several dimensions
    at once."""
    return 0 if len(changes) == 1 else 1 + any(change.axis == rank - 1 for change in changes)


def _matched(before: Layout, after: Layout) -> MatchedChanges[StepChange] | None:
    changes = changes_of(before, after)
    terms = before.dims[: before.hidden], after.dims[: after.hidden]
    if changes is None or terms[0] != terms[1] or not all(change.fits for change in changes):
        return None
    return MatchedChanges.of(changes)


def changes_of(before: Layout, after: Layout) -> tuple[StepChange, ...] | None:
    """Return the change of every tensor dimension whose cut changes, in order of dimensions.

    Return None if digits other than the minor-most ones change.
    """
    found = []
    sides = before.dims[before.hidden :], after.dims[after.hidden :]
    for axis, (old, new) in enumerate(zip(*sides, strict=True)):
        change = _change(axis, old, new)
        if change is None:
            return None
        found += [change] if change.digits else []
    return tuple(found)


def _change(axis: int, before: DimLayout, after: DimLayout) -> StepChange | None:
    is_new = after.parts > before.parts
    large, small = (before, after) if is_new else (after, before)
    digits = tail(pairs_of(small.digits), pairs_of(large.digits))
    if digits is None:
        return None
    if not digits:
        return StepChange(axis, (), is_new, fits=True) if small.levels == large.levels else None
    return StepChange(axis, digits, is_new, dims_fit(before, after))


def quoted(names: tuple[str, ...] | None) -> str:
    """Return axis names as a Python expression."""
    texts = [f'"{name}"' for name in names or ()]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"
