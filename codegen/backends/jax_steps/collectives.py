"""Exchanges that equal a few tiled collectives over axes: slices, all-gathers and all-to-alls.

Every dimension is split by the same axes before and after, except for its minor-most axes: new axes
are slices, removed axes are gathered, and axes that move from one dimension to another are an
all-to-all. Devices receive only the data that they need, and padding: a dimension that is whole at
first and does not divide evenly is padded before it is cut.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from shardwright.codegen.backends.jax_steps.changes import MatchedChanges
from shardwright.codegen.moves.basis.digits import Digits
from shardwright.codegen.moves.network.collectives import positions_of_groups
from shardwright.codegen.moves.network.passes import Laid, exchanged, gathered
from shardwright.codegen.moves.xla import Collective
from shardwright.ir.axes import AxisRef, contains
from shardwright.ir.exchange import Exchange
from shardwright.ir.mesh import Mesh
from shardwright.ir.reshard import Reshard

Refs = tuple[AxisRef, ...]


@dataclass(frozen=True)
class AxisChange:
    """The minor-most axes that a dimension gained (`is_new`) or lost, and their digits."""

    axis: int
    refs: Refs
    digits: Digits
    is_new: bool


@dataclass(frozen=True)
class Collectives:
    """Statements that compute the target shard `y` from the source shard `x`.

    `wire`: as in Rounds; `libraries`: the imports that they use; `asked`: their collectives;
    `laid`: collectives and slices, to count passes over memory.
    """

    lines: tuple[str, ...]
    wire: tuple[int, int]
    libraries: frozenset[str] = frozenset()
    asked: tuple[Collective, ...] = ()
    laid: tuple[Laid, ...] = ()


def among(op: str, nbytes: int, digits: Digits, devices: int) -> Collective:
    """Return a collective among mesh positions that differ only in `digits`. `nbytes`: the size of
    its result."""
    return Collective(op, nbytes, positions_of_groups(digits, devices).tolist())


def collectives_of(
    reshard: Reshard, exchange: Exchange, named: Callable[[Refs], str]
) -> Collectives | None:
    """Return collectives that perform an exchange, or None if there are none.

    `named` formats axes of the refined source mesh as a Python expression.
    """
    changes = _changes(reshard)
    if changes is None or not _is_aligned(exchange, changes):
        return None
    moves = MatchedChanges.of(changes)
    if moves is None:
        return None
    program = _Statements(reshard, list(exchange.source.local_shape), named)
    program.pad(exchange)
    for change in moves.slices:
        program.slice(change.axis, change.refs)
    for axis, gone in moves.all_to_alls:
        program.all_to_all(axis, gone.axis, gone.refs)
    # Gather last along the dimension whose parts are contiguous in memory: the last step gathers
    # the most, and along this dimension it needs no transpose.
    for change in sorted(moves.all_gathers, key=lambda change: -change.axis):
        program.all_gather(change.axis, change.refs)
    program.cut(exchange.target.local_shape)
    *first, last = program.lines or ["x = x"]
    wire = program.wire, program.wire * reshard.source.mesh.size
    lines, asked = (*first, last.replace("x = ", "y = ", 1)), tuple(program.asked)
    laid = tuple(program.laid)
    return Collectives(lines, wire, frozenset(program.libraries), asked, laid)


def _changes(reshard: Reshard) -> tuple[AxisChange, ...] | None:
    """Return the change of every dimension whose axes change, or None if axes other than the
    minor-most ones change."""
    mesh = reshard.source.mesh
    if mesh != reshard.target.mesh:
        return None
    refined = mesh.refine(reshard.source.used())
    if not all(_is_made_of(ref, refined, mesh) for ref in reshard.target.used()):
        return None  # the source's refined mesh cannot name the target's axes
    found = []
    for axis, sides in enumerate(zip(reshard.source.dims, reshard.target.dims, strict=True)):
        before, after = (_parts(dim.axes, refined, mesh) for dim in sides)
        shared = min(len(before), len(after))
        if before[:shared] != after[:shared]:
            return None
        if len(before) != len(after):
            longer = max(before, after, key=len)
            refs = longer[shared:]
            digits = tuple((digit.stride, digit.size) for digit in map(mesh.digit, refs))
            found.append(AxisChange(axis, refs, digits, len(after) > len(before)))
    return tuple(found)


def _is_made_of(ref: AxisRef, refined: Refs, mesh: Mesh) -> bool:
    parts = _parts((ref,), refined, mesh)
    return math.prod(map(mesh.full_size, parts)) == mesh.full_size(ref)


def _parts(refs: Refs, refined: Refs, mesh: Mesh) -> Refs:
    return tuple(part for ref in refs for part in refined if contains(ref, part, mesh.sizes))


def _is_aligned(exchange: Exchange, changes: tuple[AxisChange, ...]) -> bool:
    """Return whether padded shards nest: small shards start at multiples of their size within large
    shards."""
    changed = {change.axis for change in changes}
    for axis, dims in enumerate(exchange.dims):
        small, large = sorted((dims.source, dims.target), key=lambda dim: -dim.parts)
        if axis not in changed and small != large:
            return False
        parts, whole = small.parts // large.parts, large.parts == 1
        if axis in changed and not (dims.is_flat and (whole or small.size * parts == large.size)):
            return False
    return True


@dataclass
class _Statements:
    """The statements written so far. `shape`: the shape of `x` after them; `wire`: the elements
    that each device receives."""

    reshard: Reshard
    shape: list[int]
    named: Callable[[Refs], str]
    lines: list[str] = field(default_factory=list)
    wire: int = 0
    asked: list[Collective] = field(default_factory=list)
    laid: list[Laid] = field(default_factory=list)
    libraries: set[str] = field(default_factory=set)

    def _size(self, refs: Refs) -> int:
        return math.prod(self.reshard.source.mesh.full_size(ref) for ref in refs)

    def pad(self, exchange: Exchange) -> None:
        ends = []
        for axis, dims in enumerate(exchange.dims):
            source, target = dims.source, dims.target
            size = max(self.shape[axis], target.size * (target.parts // source.parts))
            ends.append((0, size - self.shape[axis]))
            self.shape[axis] = size
        if any(end for _, end in ends):
            self._add("jnp", f"pad(x, {tuple(ends)})")
            self._lay_slice()

    def slice(self, axis: int, refs: Refs) -> None:
        size = self.shape[axis] = self.shape[axis] // self._size(refs)
        start = f"lax.axis_index({self.named(refs)}) * {size}"
        self._add("lax", f"dynamic_slice_in_dim(x, {start}, {size}, axis={axis})")
        self._lay_slice()

    def all_to_all(self, split: int, concat: int, refs: Refs) -> None:
        count = self._size(refs)
        self.wire += math.prod(self.shape) // count * (count - 1)
        self.laid.append(exchanged(self.shape, split, concat, count, "apart"))
        self.shape[split] //= count
        self._reshape([*self.shape[:split], count, *self.shape[split:]])
        how = f"split_axis={split}, concat_axis={concat}"
        self._add("lax", f"all_to_all(x, {self.named(refs)}, {how})")
        self.shape[concat] *= count
        self._reshape(self.shape)
        self._ask("all-to-all", refs)

    def all_gather(self, axis: int, refs: Refs) -> None:
        """Gather the parts of a dimension.

        Unless the dimension is outermost, gather whole shards along a new dimension and reshape:
        XLA moves parts in smaller units when it joins them along an inner dimension.
        """
        count = self._size(refs)
        self.wire += math.prod(self.shape) * (count - 1)
        is_outermost = math.prod(self.shape[:axis]) == 1
        how = f"axis={axis}" + ", tiled=True" * is_outermost
        self._add("lax", f"all_gather(x, {self.named(refs)}, {how})")
        before = tuple(self.shape)
        self.shape[axis] *= count
        if not is_outermost:
            self._reshape(self.shape)
        self._ask("all-gather", refs)
        self.laid.append(gathered(before, self.shape))

    def _add(self, library: str, call: str) -> None:
        self.libraries.add(library)
        self.lines.append(f"x = {library}.{call}")

    def _ask(self, op: str, refs: Refs) -> None:
        mesh, nbytes = self.reshard.source.mesh, math.prod(self.shape) * self.reshard.itemsize
        digits = tuple((digit.stride, digit.size) for digit in map(mesh.digit, refs))
        self.asked.append(among(op, nbytes, digits, mesh.size))

    def _lay_slice(self) -> None:
        self.laid.append(Laid("slice", math.prod(self.shape)))

    def _reshape(self, shape: list[int]) -> None:
        self.lines.append(f"x = x.reshape({', '.join(map(str, shape))})")

    def cut(self, shape: tuple[int, ...]) -> None:
        for axis, size in enumerate(shape):
            if self.shape[axis] > size:
                self._add("lax", f"slice_in_dim(x, 0, {size}, axis={axis})")
                self.shape[axis] = size
                self._lay_slice()
