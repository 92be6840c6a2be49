"""Rounds: the transfers of an exchange as permutations of windows, for `lax.ppermute`.

An ordered pair of devices exchanges at most one box: a device holds one source shard and one target
shard, and the pieces of a tile come from different holders. In a round every device sends at most
one box and receives at most one, maybe to itself, and all boxes are windows of one shape, the
elementwise largest box. What a window has beyond its box must be padding of the target shard:

    padded   boxes are taken as they were without the end of the tensor, which cuts the last ones
             short: shards are padded to one size, so that all have room for the full window
    exact    boxes of a round have one shape, so that only the plan's bytes travel; chosen where
             padding would be 5% of the bytes or more

Kinds of numbers for the rounds, each a closed form in the two ends but the last:

    tiles     the number of the target shard among those that meet the sender's shard
    shards    the number of the source shard among those that meet the receiver's shard
    turns     their sum modulo the larger count
    rotation  receiver minus sender, modulo the devices
    mirror    sender xor receiver
    table     an edge colouring (König), listed: the fewest rounds there can be
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from shardwright.codegen.planner.schedule import colouring
from shardwright.ir.exchange import Exchange, positions_of
from shardwright.ir.index import Integers
from shardwright.ir.layout import DimLayout, Layout
from shardwright.ir.transfers import Transfers, enumerate_transfers

Kind = Literal["tiles", "shards", "turns", "rotation", "mirror", "table"]
KINDS: tuple[Kind, ...] = ("tiles", "shards", "turns", "rotation", "mirror")
MOST_PADDING = 0.05


@dataclass(frozen=True)
class Rounds:
    """The rounds of an exchange; ranks number the sorted union of the device ids.

    `exact`: the round's number begins with the shape of its boxes. In `count` rounds boxes travel;
    `least` is the most that a device sends to others or receives from them. `wire`: elements that
    the busiest device receives from others, with padding, and all devices together. `table`: for
    kind "table", per round the receiver of each rank, -1 for none.
    """

    kind: Kind
    exact: bool
    modulus: int
    count: int
    least: int
    wire: tuple[int, int]
    table: tuple[tuple[int, ...], ...] = ()


def rounds_of(exchange: Exchange, boxes: Boxes) -> Rounds:
    """The rounds of an exchange of tensors of one dimension or more."""
    several = len(np.unique(boxes.full, axis=0)) > 1
    padding = boxes.padding()
    exact = padding >= MOST_PADDING or (several and padding == 0)
    shapes = boxes.shape if exact else boxes.full
    group = np.unique(shapes, axis=0, return_inverse=True)[1].reshape(-1)
    kind, modulus, number = _numbers(exchange, boxes, group, closed=exact or not several)
    turn = np.unique(np.stack([group, number]), axis=1, return_inverse=True)[1].reshape(-1)
    away = ~boxes.local
    count = len(np.unique(turn[away]))
    least = max(_most(end[away]) for end in (boxes.sender, boxes.receiver))
    table = _table(boxes, turn, exchange.ranks.size) if kind == "table" else ()
    wire = _wire(boxes, turn, exchange.ranks.size)
    return Rounds(kind, exact, modulus, count, least, wire, table)


@dataclass(frozen=True)
class Boxes:
    """Transfers: ranks of their ends, the shapes of their boxes, exact and without the tensor's
    end, and their numbers among those of their sender and of their receiver."""

    sender: Integers
    receiver: Integers
    shape: Integers
    full: Integers
    local: np.ndarray
    tile: Integers
    source: Integers

    @staticmethod
    def of(exchange: Exchange) -> Boxes:
        moved = enumerate_transfers(exchange)
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
        return Boxes(
            np.searchsorted(exchange.ranks, moved.sender),
            np.searchsorted(exchange.ranks, moved.receiver),
            moved.tensor[:, :, 1] - moved.tensor[:, :, 0],
            _full_shapes(exchange, moved, shards),
            moved.is_local,
            tile,
            source + _pieces(exchange, moved, shards, places),
        )

    def padding(self) -> float:
        """What windows of the full shapes take beyond the bytes, of the bytes: of all devices
        together or of the busiest one, whichever is more."""
        away = ~self.local
        if not away.any():
            return 0.0
        group = np.unique(self.full, axis=0, return_inverse=True)[1].reshape(-1)
        window = _largest(self.shape, group).prod(axis=1)[group]
        volumes = (window[away], self.shape.prod(axis=1)[away])
        most, exact = (_sums(self.receiver[away], volume).max() for volume in volumes)
        return float(max(volumes[0].sum() / volumes[1].sum(), most / exact)) - 1


def _full_shapes(exchange: Exchange, moved: Transfers, shards: list[list[Integers]]) -> Integers:
    """The shapes of boxes if flat splits went on beyond the end of the tensor."""
    shape = moved.tensor[:, :, 1] - moved.tensor[:, :, 0]
    for axis, dim in enumerate(exchange.dims):
        if not dim.is_flat or (exchange.rule.pieces > 1 and axis == exchange.rule.cut):
            continue
        a, b = shards[0][axis], shards[1][axis]
        ends = ((a + 1) * dim.source.size, (b + 1) * dim.target.size)
        shape[:, axis] = np.minimum(*ends) - moved.tensor[:, axis, 0]
    return shape


def _number(own: Layout, other: Layout, shards: list[list[Integers]]) -> Integers:
    """The row-major number of the other shard among those that meet the own one."""
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
    """The number of the piece that each transfer is; 0 for what stays."""
    number = np.zeros(len(moved), dtype=np.int64)
    for piece in range(1, exchange.rule.pieces):
        sender = exchange.holder(tuple(shards[0]), places[1], piece)
        number[~moved.is_local & (sender == places[0])] = piece
    return number


def _numbers(
    exchange: Exchange, moved: Boxes, group: Integers, *, closed: bool
) -> tuple[Kind, int, Integers]:
    """The first closed form with the fewest rounds, else a colouring of each group."""
    least = sum(
        max(_most(ends[group == each]) for ends in (moved.sender, moved.receiver))
        for each in range(int(group.max(initial=-1)) + 1)
    )
    modulus = max(int(moved.tile.max(initial=0)), int(moved.source.max(initial=0))) + 1
    if closed:
        for kind in KINDS:
            number = _closed(kind, moved, exchange.ranks.size, modulus)
            if _is_schedule(moved, group, number) and _count(group, number) == least:
                return kind, modulus, number
    number = np.zeros_like(group)
    for each in range(int(group.max(initial=-1)) + 1):
        mine = group == each
        ends = moved.sender[mine], moved.receiver[mine]
        most = max(map(_most, ends))
        number[mine] = colouring(*ends, moved.shape[mine].prod(axis=1), most)
    return "table", modulus, number


def _closed(kind: Kind, moved: Boxes, devices: int, modulus: int) -> Integers:
    numbers = {
        "tiles": moved.tile,
        "shards": moved.source,
        "turns": (moved.tile + moved.source) % modulus,
        "rotation": (moved.receiver - moved.sender) % devices,
        "mirror": moved.sender ^ moved.receiver,
    }
    return numbers[kind]


def _is_schedule(moved: Boxes, group: Integers, number: Integers) -> bool:
    """Whether no device sends twice or receives twice in a round."""
    ends = (moved.sender, moved.receiver)
    return all(_count(group, number, end) == number.size for end in ends)


def _count(*columns: Integers) -> int:
    return int(np.unique(np.stack(columns), axis=1).shape[1])


def _most(devices: Integers) -> int:
    return int(np.unique(devices, return_counts=True)[1].max(initial=0))


def _table(moved: Boxes, turn: Integers, devices: int) -> tuple[tuple[int, ...], ...]:
    table = np.full((int(turn.max()) + 1, devices), -1, dtype=np.int64)
    table[turn, moved.sender] = moved.receiver
    return tuple(map(tuple, table.tolist()))


def _wire(moved: Boxes, turn: Integers, devices: int) -> tuple[int, int]:
    """Elements that arrive at the busiest device, and at all, from others."""
    volume = _largest(moved.shape, turn).prod(axis=1)[turn]
    received = np.zeros(devices, dtype=np.int64)
    np.add.at(received, moved.receiver[~moved.local], volume[~moved.local])
    return int(received.max()), int(received.sum())


def _largest(shapes: Integers, group: Integers) -> Integers:
    """The elementwise largest shape of every group."""
    largest = np.zeros((int(group.max(initial=-1)) + 1, shapes.shape[1]), dtype=np.int64)
    np.maximum.at(largest, group, shapes)
    return largest


def _sums(devices: Integers, volume: Integers) -> Integers:
    sums = np.zeros(int(devices.max()) + 1, dtype=np.int64)
    np.add.at(sums, devices, volume)
    return sums
