"""The boxes of an exchange: its transfers as arrays, from which a transport is chosen and
written."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shardwright.ir.algebra.index import Integers
from shardwright.ir.exchange import Exchange, ids_of, positions_of
from shardwright.ir.layout import DimLayout, Layout
from shardwright.ir.transfers import Transfers, enumerate_transfers

# Padding of windows must be less than this fraction of their bytes.
MOST_PADDING = 0.05
# Padding of a single collective that replaces several rounds may reach this larger fraction,
# because rounds copy every box several times.
MOST_PADDING_AT_ONCE = 0.15
# A table with more entries would be unreadable; the module then uses closed forms.
MOST_LISTED = 1 << 12


@dataclass(frozen=True)
class Boxes:
    """The transfers of an exchange, one entry each.

    `sender`, `receiver`: the ranks of the two devices; `shape`: the exact shape of the box; `full`:
    the shape that it would have if shards continued beyond the tensor's end; `read`, `write`: where
    it starts in the sender's and in the receiver's shard; `local`: whether both ends are the same
    device; `tile`: the number of the receiver's shard among those that intersect the sender's;
    `source`: the number of the sender's shard among those that intersect the receiver's.

    A rank is a mesh position if both meshes have the same device order, otherwise an index into the
    sorted device ids.
    """

    sender: Integers
    receiver: Integers
    shape: Integers
    full: Integers
    read: Integers
    write: Integers
    local: np.ndarray
    tile: Integers
    source: Integers

    @staticmethod
    def of(exchange: Exchange, pads: bool = True) -> Boxes:
        """Return the boxes of an exchange. `pads`: whether whole dimensions may be padded; full
        boxes may then extend beyond the ends of whole dimensions too."""
        moved = exchange.once(enumerate_transfers)
        places = (
            positions_of(exchange.source.mesh, moved.sender),
            positions_of(exchange.target.mesh, moved.receiver),
        )
        shards = [
            [np.broadcast_to(dim.index(place), place.shape) for dim in layout.dims]
            for layout, place in zip((exchange.source, exchange.target), places, strict=True)
        ]
        pieces = exchange.rule.pieces
        tile = _number(exchange.source, exchange.target, shards)
        source = _number(exchange.target, exchange.source, shards[::-1]) * pieces
        sender, receiver = places
        if not exchange.same_order:
            sender = np.searchsorted(exchange.ranks, moved.sender)
            receiver = np.searchsorted(exchange.ranks, moved.receiver)
        return Boxes(
            sender,
            receiver,
            moved.tensor[:, :, 1] - moved.tensor[:, :, 0],
            _full_shapes(exchange, moved, shards, pads),
            moved.source[:, :, 0],
            moved.target[:, :, 0],
            moved.is_local,
            tile,
            source + _pieces(exchange, moved, shards, places),
        )

    @cached_property
    def window(self) -> tuple[int, ...]:
        """The elementwise maximum of all box shapes."""
        return tuple(self.shape.max(axis=0).tolist())

    def grid(self, devices: int, most: float = MOST_PADDING) -> tuple[int, ...] | None:
        """Return how many equal windows along each dimension tile every device's target shard.
        Return None if there are no such windows, or if padding would be at least `most` of the
        bytes."""
        if (self.full != self.full[0]).any() or self.padding() >= most:
            return None
        cells, rest = np.divmod(self.write, self.window)
        counts = cells.max(axis=0) + 1
        taken = np.bincount(self.receiver, minlength=devices)
        if rest.any() or (taken != counts.prod()).any():
            return None
        return tuple(counts.tolist())

    def padding(self) -> float:
        """Return how much windows of the full shapes pad the boxes, as a fraction of the exact
        bytes: over all devices or on the busiest device, whichever is larger."""
        away = ~self.local
        if not away.any():
            return 0.0
        group = np.unique(self.full, axis=0, return_inverse=True)[1].reshape(-1)
        window = largest(self.shape, group).prod(axis=1)[group]
        volumes = (window[away], self.shape.prod(axis=1)[away])
        most, exact = (_sums(self.receiver[away], volume).max() for volume in volumes)
        return float(max(volumes[0].sum() / volumes[1].sum(), most / exact)) - 1


def _full_shapes(
    exchange: Exchange, moved: Transfers, shards: list[list[Integers]], pads: bool
) -> Integers:
    """Return the shapes that boxes would have if flat splits continued beyond the tensor's end."""
    shape = moved.tensor[:, :, 1] - moved.tensor[:, :, 0]
    for axis, dim in enumerate(exchange.dims):
        if not dim.is_flat or (exchange.rule.pieces > 1 and axis == exchange.rule.cut):
            continue
        a, b = shards[0][axis], shards[1][axis]
        ends = ((a + 1) * dim.source.size, (b + 1) * dim.target.size)
        if pads and _is_whole(dim.source, dim.target):
            end = ends[1]
        elif pads and _is_whole(dim.target, dim.source):
            end = ends[0]
        else:
            end = np.minimum(*ends)
        shape[:, axis] = end - moved.tensor[:, axis, 0]
    return shape


def reached(own: Layout, other: Layout) -> tuple[int, ...]:
    """Return the shape of a shard extended so that full boxes fit: a whole dimension gets the total
    length of the other side's shards."""
    sizes = (
        -(-dim.size // peer.size) * peer.size if _is_whole(dim, peer) else dim.size
        for dim, peer in zip(own.dims, other.dims, strict=True)
    )
    return tuple(sizes)


def _is_whole(dim: DimLayout, peer: DimLayout) -> bool:
    return dim.parts == 1 and peer.parts > 1 and dim.is_flat and peer.is_flat


def _number(own: Layout, other: Layout, shards: list[list[Integers]]) -> Integers:
    """Return, for each transfer, the row-major number of the other shard among the shards that
    intersect this one."""
    number = np.zeros(shards[0][0].shape, dtype=np.int64)
    for mine, peer, at, its in zip(own.dims, other.dims, *shards, strict=True):
        first, last = _owners(mine, peer, at)
        number = number * (last - first + 1) + its - first
    return number


def _owners(own: DimLayout, other: DimLayout, index: Integers) -> tuple[Integers, Integers]:
    low, high = (end[index] for end in own.intervals)
    first, last = other.owners(low, high)
    return np.broadcast_to(first, index.shape), np.broadcast_to(last, index.shape)


def _pieces(
    exchange: Exchange,
    moved: Transfers,
    shards: list[list[Integers]],
    places: tuple[Integers, Integers],
) -> Integers:
    """Return the piece number of each transfer, 0 for local transfers."""
    number = np.zeros(len(moved), dtype=np.int64)
    for piece in range(1, exchange.rule.pieces):
        sender = exchange.holder(tuple(shards[0]), places[1], piece)
        number[~moved.is_local & (sender == places[0])] = piece
    return number


def largest(shapes: Integers, group: Integers) -> Integers:
    """Return the elementwise largest shape in each group. `group`: the group of each shape."""
    largest = np.zeros((int(group.max(initial=-1)) + 1, shapes.shape[1]), dtype=np.int64)
    np.maximum.at(largest, group, shapes)
    return largest


def _sums(devices: Integers, volume: Integers) -> Integers:
    sums = np.zeros(int(devices.max()) + 1, dtype=np.int64)
    np.add.at(sums, devices, volume)
    return sums


def ranks_by_shard(exchange: Exchange, layout: Layout) -> list[Integers]:
    """Return the ranks that have each shard of a layout (of the source or the target)."""
    positions = np.arange(layout.mesh.size, dtype=np.int64)
    ranks = positions
    if not exchange.same_order:
        ranks = np.searchsorted(exchange.ranks, ids_of(layout.mesh))
    shard = 0 * positions
    for dim in layout.dims:
        shard = shard * dim.parts + dim.index(positions)
    return [ranks[holders] for holders in split_by(shard)]


def split_by(keys: Integers) -> list[Integers]:
    """Return the indices at which each distinct key occurs. Both keys and indices are in ascending
    order."""
    order = np.argsort(keys, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(keys[order])) + 1)
