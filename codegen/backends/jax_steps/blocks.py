"""Steps of a basis plan as statements: where possible, one tiled collective over axes per step.

A step over the minor-most digits of dimensions is a JAX collective if padded shards nest
(`moves/basis/boxed.py`), and a permute moves padded shards. Any other step moves boxes
(`support/xla_boxes.py`), according to its exchange or reduction, without padding. An in-place sum
is `lax.psum` for any shape, a maximum `lax.pmax`, a minimum `lax.pmin`. A reduce-scatter by maximum
or minimum is an all-to-all followed by a local reduction.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shardwright.codegen.backends.jax_steps.axes import ProgramAxes
from shardwright.codegen.backends.jax_steps.boxes import (
    StepBoxes,
    boxes_of,
    ids_of_ends,
    pairs_of,
)
from shardwright.codegen.backends.jax_steps.changes import MatchedChanges, changes_of
from shardwright.codegen.backends.jax_steps.collectives import Changed, Form, OverDigits, padded
from shardwright.codegen.backends.jax_steps.statements import Statement
from shardwright.codegen.moves.basis.boxed import fits, layouts_of
from shardwright.codegen.moves.basis.permutes import permuted
from shardwright.codegen.moves.basis.traffic import moved
from shardwright.codegen.moves.network.passes import Laid
from shardwright.codegen.moves.xla import Collective
from shardwright.codegen.spec.hlo.received import received_by
from shardwright.codegen.text.python_text import WIDTH
from shardwright.ir.algebra.index import Integers
from shardwright.ir.dtypes import DTYPES
from shardwright.ir.exchange import Exchange, positions_of, same_devices
from shardwright.ir.layout import DimLayout, Layout
from shardwright.ir.mesh import Mesh
from shardwright.ir.reshard import Reshard
from shardwright.ir.sharding import Operator
from shardwright.ir.steps import ReduceStep, Step

_BINARY: dict[Operator, str] = {"sum": "add", "max": "maximum", "min": "minimum"}


WIDENED = ("bfloat16",)
"""Float types that always move as integers: XLA on CPU slices padded arrays of these types in
float32, which changes NaNs."""


@dataclass(frozen=True)
class Collectives:
    """The collectives of one step, or of a plan of one exchange: statements that update `x`.

    `received`: the bytes that each rank receives; `asked`: the step's collectives.
    """

    statements: tuple[Statement, ...]
    received: Integers
    boxes: StepBoxes | None = None
    asked: tuple[Collective, ...] = ()  # the collectives; empty for a step that moves boxes
    laid: tuple[Laid, ...] = ()  # the operations, to count passes over memory
    is_padded: bool = True  # whether boxes leave zero padding in a shard

    @property
    def uses(self) -> frozenset[str]:
        return frozenset(name for statement in self.statements for name in statement.uses)

    @property
    def wire(self) -> tuple[int, int]:
        """The bytes received by the busiest device, and by all devices."""
        return int(self.received.max()), int(self.received.sum())

    @staticmethod
    def of(made: Changed) -> Collectives:
        """Return the collectives of changes of dimensions."""
        statements = tuple(made.statements or [Statement("", ())])
        received = _received(made.over, made.asked)
        return Collectives(statements, received, asked=tuple(made.asked), laid=tuple(made.laid))

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
    started: str = "0"  # the initial value of a reduction, as an expression
    empty: str = "0"  # the value of missing terms, as an expression
    outermost: bool = False

    @property
    def itemsize(self) -> int:
        return DTYPES[self.dtype]

    @cached_property
    def over(self) -> OverDigits:
        """The collectives of the program's axes."""
        return OverDigits(self.source, self.ids, self.axes, self.itemsize)

    def of(self, number: int, step: Step) -> Collectives:
        """Return the block for `step`, which is step `number` of its plan."""
        if isinstance(step, ReduceStep):
            return self._summed(number, step)
        before, after = step.exchange.source, step.exchange.target
        if self.axes is not None and _only_places(before, after):
            placed = Laid("slice", math.prod(after.local_shape))
            return Collectives((self._placed(before, after),), self._everywhere(0), laid=(placed,))
        if step.op == "permute" and fits(step):
            return self._permute(before, after)
        moves = self._moves(before, after)
        if moves is None:
            return self._by_boxes(number, step)
        form: Form = "outermost" if self.outermost else "together"
        return Collectives.of(Changed.of(self.over, before, after, moves, form))

    def _moves(self, before: Layout, after: Layout) -> MatchedChanges | None:
        moves = MatchedChanges.between(before, after)
        is_cut = moves is not None and moves.slices and _is_padded(before, after)
        if is_cut and self.dtype in WIDENED:
            return None
        if self.axes is None and moves is not None:
            same = same_devices(before.mesh, after.mesh)
            return moves if same and not moves.slices else None
        return moves

    def _permute(self, before: Layout, after: Layout) -> Collectives:
        ends = [self._ranks_of(layout) for layout in (before, after)]
        pairs = permuted(*ends)
        sends = [[*pair] for pair in pairs if pair[0] != pair[1]]
        nbytes = math.prod(after.local_shape) * self.itemsize
        received = np.zeros(self.ids.size, dtype=np.int64)
        received[[receiver for _, receiver in sends]] = nbytes
        written = str(pairs)
        made = [Statement("lax.ppermute", ("x", "AXES", written))]
        if len(written) > WIDTH - 30:  # the rest of the line needs 30 characters
            permute = Statement("lax.ppermute", ("x", "AXES", "sends"))
            made = [self._sends(before, after), permute]
        asked = (Collective("collective-permute", nbytes, sends),) if sends else ()
        laid = (Laid("permute", math.prod(after.local_shape)),)
        return Collectives(tuple(made), received, asked=asked, laid=laid)

    def _sends(self, before: Layout, after: Layout) -> Statement:
        numbers = [
            pairs_of(tuple(digit for dim in layout.dims for digit in dim.digits))
            for layout in (before, after)
        ]
        named = [str(self.ids.size), *map(str, numbers)]
        if self.axes is None:
            named += [f"ids=({', '.join(ids_of_ends(before, after, self.source))})"]
        return Statement("sends_along", tuple(named), name="sends")

    def _ranks_of(self, layout: Layout) -> list[int]:
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
        return Statement("jnp.where", (f"{self.over.index(digits)} == 0", "x", self.empty))

    def _summed(self, number: int, step: ReduceStep) -> Collectives:
        before, after = step.reduction.before, step.reduction.after
        changes = changes_of(before, after)
        made = Changed(self.over, before.mesh, [*before.local_shape])
        if changes == ():
            made.reduce(step.reduction.operator, pairs_of(step.reduction.terms))
            return Collectives.of(made)
        if changes is None or not all(change.fits for change in changes):
            return self._by_boxes(number, step)
        (change,) = changes
        made.pad(before, after)
        made.scatter(step.reduction.operator, change, outermost=self.outermost)
        return Collectives.of(made)

    def _everywhere(self, nbytes: int) -> Integers:
        return np.full(self.ids.size, nbytes, dtype=np.int64)

    def _received(self, step: Step) -> Integers:
        (devices, elements), _ = moved(step)
        total = np.zeros(self.ids.size, dtype=np.int64)
        np.add.at(total, np.searchsorted(self.ids, devices), elements)
        return total * self.itemsize

    def _by_boxes(self, number: int, step: Step) -> Collectives:
        named = ["x", "AXES", str(self.ids.size)]
        named += [f"BEFORE_{number}", f"AFTER_{number}", f"SENDERS_{number}"]
        boxes = boxes_of(step, self.source)
        named += [f"ids=({', '.join(boxes.ids)})"] if self.axes is None else []
        empty = "0"
        if isinstance(step, ReduceStep):
            named += [f"reduce=jnp.{_BINARY[step.reduction.operator]}"]
            empty = self.started
        elif _new(step.exchange.source, step.exchange.target):
            empty = self.empty
        named += [f"empty={empty}"] if empty != "0" else []
        moved = Statement("moved_by_boxes", tuple(named))
        laid = (Laid("boxes", math.prod(layouts_of(step)[1].local_shape)),)
        return Collectives((moved,), self._received(step), boxes, is_padded=empty == "0", laid=laid)


def _new(before: Layout, after: Layout) -> tuple[DimLayout, ...]:
    """Return the hidden dimensions that a step creates by turning replicas into terms, of which
    only the first has a value."""
    pairs = zip(before.dims[: before.hidden], after.dims[: after.hidden], strict=True)
    return tuple(new for old, new in pairs if old.extent < new.extent)


def _only_places(before: Layout, after: Layout) -> bool:
    pairs = zip(before.dims, after.dims, strict=True)
    stays = all(old == new or old.extent < new.extent for old, new in pairs)
    return stays and bool(_new(before, after))


def _is_padded(before: Layout, after: Layout) -> bool:
    return padded(before, after) != [*before.local_shape]


def _received(over: OverDigits, asked: Sequence[Collective]) -> Integers:
    """Return the bytes that each rank receives in collectives, the same for all ranks."""
    devices = over.ids.size
    nbytes = (received_by(each.op, each.ends, each.nbytes, devices)[0] for each in asked)
    return np.full(devices, sum(nbytes), dtype=np.int64)


def block_of_exchange(reshard: Reshard, exchange: Exchange) -> Collectives | None:
    """Return collectives over the axes of the source that perform an exchange, one for each change
    of a dimension, or None if there are none.

    Devices receive only the data that they need, and padding: a dimension that is whole at first
    and does not divide evenly is padded before it is cut."""
    if reshard.source.mesh != reshard.target.mesh:
        return None
    moves = MatchedChanges.between(exchange.source, exchange.target)
    axes = ProgramAxes.of(reshard.source, ())
    if moves is None or None in map(axes.over, moves.digits):
        return None
    mesh = reshard.source.mesh
    over = OverDigits(mesh, np.arange(mesh.size), axes, DTYPES[reshard.dtype])
    return Collectives.of(Changed.of(over, exchange.source, exchange.target, moves, "apart"))
