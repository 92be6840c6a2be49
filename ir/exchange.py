"""An exchange: a source and a target layout, and the rule that picks the sender of each tile.

A position is the row-major number of a device in one mesh. A rank is the number of a device in the
sorted union of the device ids of both meshes. A receiver that already holds a tile copies it
locally. Otherwise the sender is a closed form of the receiver's position, which sender and receiver
compute independently:

    own     the holder with the same free digits as the receiver (both meshes must have the same
            device order)
    turns   a tile is cut into P pieces along one dimension. Let R be the number of holders, q the
            number of the receiver among the replicas of its target shard, and b the index of the
            target shard along the cut dimension. Piece j comes from holder
            q mod (R/P) + (R/P) * ((j + q floordiv (R/P) + b) mod P)

Partial sums are numbered along the first hidden dimension: a source shard has one partial sum, and
a target shard needs all of them. The exchange brings all partial sums of a shard to its receiver,
which reduces them in the order of their numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from shardwright.ir.algebra.index import Value, floor_div, minimum, mod
from shardwright.ir.layout import HiddenDim, Layout
from shardwright.ir.mesh import Mesh
from shardwright.ir.once import Once
from shardwright.ir.reshard import Reshard
from shardwright.ir.sharding import Operator
from shardwright.ir.tiles import DimTiles


@dataclass(frozen=True)
class HolderRule:
    """The rule that picks the sender: `own`, or `turns` with tiles cut into `pieces` along
    dimension `cut`.

    Pieces begin at multiples of `unit` elements from the start of their tile. `unit` divides the
    width of every tile, so pieces are aligned as well as their tile is.
    """

    kind: Literal["own", "turns"] = "own"
    pieces: int = 1
    cut: int = 0
    unit: int = 1


@dataclass(frozen=True)
class Exchange(Once):
    """All transfers of a reshard at once, in closed form. `operator`: the reduction of partial
    results along the first hidden dimension; None if nothing is reduced."""

    source: Layout
    target: Layout
    rule: HolderRule
    operator: Operator | None = None

    @staticmethod
    def of(reshard: Reshard, rule: HolderRule) -> Exchange:
        """Return the exchange of a reshard under a holder rule.

        Axes that stay unreduced are matched by name. Each becomes a hidden dimension of both sides,
        in the order of the source's mesh, so a partial sum keeps its coordinate. For an axis that
        becomes unreduced, the hidden dimension has one element in the source and one per device in
        the target, so only the device of coordinate 0 receives a value; in a transposed reshard the
        sides swap. All reduced axes together form the first hidden dimension, which is split in the
        source and whole in the target.
        """
        hidden = _hidden(reshard)
        return Exchange(
            Layout.of(reshard.source, reshard.shape, reshard.source_split, hidden[0]),
            Layout.of(reshard.target, reshard.shape, reshard.target_split, hidden[1]),
            rule,
            reshard.source.operator if reshard.adds and hidden[1][0].extent > 1 else None,
        )

    @cached_property
    def dims(self) -> tuple[DimTiles, ...]:
        """The source and the target split of each dimension, hidden dimensions first."""
        pairs = zip(self.source.dims, self.target.dims, strict=True)
        return tuple(DimTiles(source, target) for source, target in pairs)

    @property
    def terms(self) -> int:
        """The number of partial results that make one value; 1 without a reduction."""
        return 1 if self.operator is None else self.dims[0].source.extent

    @property
    def new(self) -> int:
        """The number of trailing hidden dimensions along which only the first element has a
        value in the source."""
        hidden = self.source.hidden
        grows = (dim.target.extent > dim.source.extent for dim in self.dims[:hidden])
        return next((hidden - place for place, found in enumerate(grows) if found), 0)

    @property
    def same_order(self) -> bool:
        """Whether both meshes have the same devices in the same order."""
        return same_devices(self.source.mesh, self.target.mesh)

    @cached_property
    def ranks(self) -> np.ndarray:
        """The sorted union of the device ids of both meshes."""
        return np.union1d(ids_of(self.source.mesh), ids_of(self.target.mesh))

    def source_position_of(self, target_position: np.ndarray) -> np.ndarray:
        """Return the source positions of the devices at these target positions, -1 for a device
        outside the source mesh."""
        if self.same_order:
            return target_position
        return positions_of(self.source.mesh, ids_of(self.target.mesh)[target_position])

    def holder(self, shard: tuple[Value, ...], receiver: Value, piece: Value) -> Value:
        """Return the source position of the device that sends a piece of a tile.

        `shard`: the index of the source shard along each dimension. `receiver`: a target position.
        `piece`: the index of the piece.
        """
        if self.rule.kind == "own":
            position: Value = 0
            for dim, index in zip(self.source.dims, shard, strict=True):
                position = position + dim.place(index)
            for digit in self.source.free:
                own = mod(floor_div(receiver, digit.stride), digit.size)
                position = position + own * digit.stride
            return position
        return self.source.position(shard, self._turn(receiver, piece))

    def _turn(self, receiver: Value, piece: Value) -> Value:
        pieces = self.rule.pieces
        holders = self.source.replicas // pieces
        number = self.target.replica(receiver)
        turn = mod(number, holders)
        if pieces == 1:
            return turn
        shift = floor_div(number, holders) + self.target.dims[self.rule.cut].index(receiver)
        return turn + holders * mod(piece + shift, pieces)

    def piece(self, width: Value, piece: Value) -> tuple[Value, Value]:
        """Return the range of piece number `piece` within a tile of `width` elements. The widths of
        pieces differ by at most one unit."""
        pieces, unit = self.rule.pieces, self.rule.unit
        step, extra = floor_div(width, unit * pieces), mod(floor_div(width, unit), pieces)
        start = (piece * step + minimum(piece, extra)) * unit
        return start, ((piece + 1) * step + minimum(piece + 1, extra)) * unit


Hidden = tuple[HiddenDim, ...]


def _hidden(reshard: Reshard) -> tuple[Hidden, Hidden]:
    """Return the hidden dimensions of source and target: first the partial sums to reduce, then the
    axes that stay unreduced, last the axes that are unreduced on one side only."""
    fate, meshes = reshard.fate, (reshard.source.mesh, reshard.target.mesh)
    first, second = (tuple(HiddenDim.of((ref,), mesh) for ref in fate.kept) for mesh in meshes)
    if reshard.transposed:
        read = tuple(HiddenDim.of((ref,), meshes[0]) for ref in fate.reduced)
        return (*first, *read), (*second, *[HiddenDim(1)] * len(read))
    new = tuple(HiddenDim.of((ref,), meshes[1]) for ref in fate.new)
    first, second = (*first, *[HiddenDim(1)] * len(new)), (*second, *new)
    if not fate.reduced:
        return first, second
    terms = HiddenDim.of(fate.reduced, meshes[0])
    return (terms, *first), (HiddenDim(terms.extent), *second)


def ids_of(mesh: Mesh) -> np.ndarray:
    """Return the device id at each position of a mesh, int64."""
    ids = mesh.device_ids
    if isinstance(ids, range):
        return np.arange(ids.start, ids.stop, dtype=np.int64)
    return np.asarray(ids, dtype=np.int64)


def positions_of(mesh: Mesh, ids: np.ndarray) -> np.ndarray:
    """Return the mesh position of each device id, -1 for an id outside the mesh."""
    own = ids_of(mesh)
    order = np.argsort(own)
    slot = np.minimum(np.searchsorted(own[order], ids), own.size - 1)
    return np.where(own[order[slot]] == ids, order[slot], -1)


def same_devices(a: Mesh, b: Mesh) -> bool:
    """Return whether two meshes list the same device ids in the same order."""
    if isinstance(a.device_ids, range) and isinstance(b.device_ids, range):
        return a.device_ids == b.device_ids
    return a.size == b.size and bool(np.array_equal(ids_of(a), ids_of(b)))


def same_ids(a: Mesh, b: Mesh) -> bool:
    """Return whether two meshes have the same devices, in any order."""
    return same_devices(a, b) or bool(np.array_equal(np.sort(ids_of(a)), np.sort(ids_of(b))))
