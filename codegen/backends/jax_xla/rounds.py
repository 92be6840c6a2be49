"""Rounds: the transfers of an exchange as permutations of windows, for `lax.ppermute`.

At most one box travels between an ordered pair of devices: a device has one source shard and one
target shard, and the pieces of a tile come from different senders. In a round every device sends at
most one box and receives at most one, possibly its own. All boxes of a round are sent as windows of
one shape, the elementwise largest box. There are two ways to form rounds, which determine the
excess of windows over boxes:

    padded   boxes have the shapes they would have without the tensor's end, which cuts the last
             ones short. The excess lies in the padding of shards, which have one size; the module
             pads a whole dimension that is to be cut or assembled
    exact    boxes of a round have the same shape, so only the plan's bytes travel; chosen if
             padding would be 5% of the bytes or more

Rounds are numbered in one of these ways; all but the last are closed forms in sender and receiver:

    shards    the number of the source shard among those that intersect the receiver's shard; if
              all devices receive a full grid of boxes, a round has a fixed place in the grid
    tiles     the number of the target shard among those that intersect the sender's shard
    turns     the sum of both, modulo the larger count
    rotation  receiver minus sender, modulo the number of devices
    mirror    sender xor receiver
    table     listed: whole tiles, spread over their holders as evenly as possible, in the fewest
              possible rounds, by an edge colouring (König); chosen if a closed form with the
              plan's holders and pieces would take more rounds
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from shardwright.codegen.backends.jax_xla.boxes import (
    MOST_LISTED,
    MOST_PADDING,
    Boxes,
    largest,
    ranks_by_shard,
    split_by,
)
from shardwright.codegen.backends.jax_xla.joins import Join
from shardwright.ir.algebra.index import Integers
from shardwright.ir.colouring import colouring
from shardwright.ir.exchange import Exchange

Kind = Literal["tiles", "shards", "turns", "rotation", "mirror", "table"]
KINDS: tuple[Kind, ...] = ("shards", "tiles", "turns", "rotation", "mirror")


@dataclass(frozen=True)
class Rounds:
    """The rounds of an exchange. Ranks index the sorted union of the device ids.

    `exact`: whether boxes are grouped by exact shape, so that a round's number starts with the
    shape; `modulus`: the modulus of kind "turns"; `count`: the number of rounds in which boxes
    travel between devices; `least`: a lower bound on it, the most boxes that one device sends to or
    receives from others; `wire`: the elements, including padding, that the busiest device receives
    from others, and that all devices receive; `join`: how a shard is assembled from the rounds'
    windows, if each round has a fixed place in it; `fills`: whether one window is the whole shard;
    `table`: for kind "table", the receiver of each rank by round, -1 for none.
    """

    kind: Kind
    exact: bool
    modulus: int
    count: int
    least: int
    wire: tuple[int, int]
    join: Join | None
    fills: bool
    table: tuple[tuple[int, ...], ...] = ()


class WindowRound(NamedTuple):
    """One round. `elements`: the number of elements in its window; `pairs`: the (sender, receiver)
    pairs of different devices; `cuts`: whether it cuts a window out of the source shard that no
    earlier round cuts."""

    elements: int
    pairs: list[list[int]]
    cuts: bool


def each_round(exchange: Exchange, boxes: Boxes, whole: Boxes) -> tuple[WindowRound, ...]:
    """Return the rounds that `rounds_of` describes, in order."""
    turns = _turns(exchange, boxes, whole)
    moved, windows = turns.boxes, largest(turns.boxes.shape, turns.turn)
    found, seen = list[WindowRound](), set[tuple[bytes, bytes]]()
    for window, each in zip(windows, split_by(turns.turn), strict=True):
        away = each[~moved.local[each]]
        ends = np.stack([moved.sender[away], moved.receiver[away]], axis=1)
        starts = np.zeros((exchange.ranks.size, window.size), np.int64)
        starts[moved.sender[each]] = moved.read[each]
        cut = window.tobytes(), starts.tobytes()
        found.append(WindowRound(int(window.prod()), ends.tolist(), cut not in seen))
        seen.add(cut)
    return tuple(found)


def rounds_of(exchange: Exchange, boxes: Boxes, whole: Boxes) -> Rounds:
    """Return the rounds of an exchange of tensors with at least one dimension. `whole`: the boxes
    of whole tiles, without pieces."""
    devices = exchange.ranks.size
    turns = _turns(exchange, boxes, whole)
    away, join = ~turns.boxes.local, _join(exchange, turns)
    return Rounds(
        turns.kind,
        turns.grouped.exact,
        turns.modulus,
        count=len(np.unique(turns.turn[away])),
        least=max(_most(end[away]) for end in (turns.boxes.sender, turns.boxes.receiver)),
        wire=_wire(turns.boxes, turns.turn, devices),
        join=join,
        fills=join is not None and join.window == exchange.target.local_shape,
        table=_table(turns.boxes, turns.turn, devices) if turns.kind == "table" else (),
    )


@dataclass(frozen=True)
class _Grouped:
    """Boxes grouped by shape. `exact`: whether they are grouped by exact shape, rather than by the
    shape without the tensor's end; `several`: whether boxes differ even without that end; `group`:
    the number of each box's shape."""

    exact: bool
    several: bool
    group: Integers


@dataclass(frozen=True)
class _Turns:
    """A round for every box, given by its shape and by its number among the boxes of that shape."""

    kind: Kind
    boxes: Boxes
    grouped: _Grouped
    number: Integers
    modulus: int = 1

    @cached_property
    def turn(self) -> Integers:
        pair = np.stack([self.grouped.group, self.number])
        return np.unique(pair, axis=1, return_inverse=True)[1].reshape(-1)

    @property
    def count(self) -> int:
        """The number of rounds, including rounds in which no box leaves its device."""
        return int(self.turn.max(initial=-1)) + 1


def _turns(exchange: Exchange, boxes: Boxes, whole: Boxes) -> _Turns:
    devices = exchange.ranks.size
    closed = _closed_form(boxes, devices)
    if closed is not None and devices > MOST_LISTED:
        return closed
    whole = _spread(exchange, whole)
    least = _least(whole, _grouped(whole).group)
    if closed is not None and (closed.count <= least or least * devices > MOST_LISTED):
        return closed
    return _coloured(whole)


def _grouped(boxes: Boxes) -> _Grouped:
    several = len(np.unique(boxes.full, axis=0)) > 1
    padding = boxes.padding()
    exact = padding >= MOST_PADDING or (several and padding == 0)
    shapes = boxes.shape if exact else boxes.full
    group = np.unique(shapes, axis=0, return_inverse=True)[1].reshape(-1)
    return _Grouped(exact, several, group)


def _closed_form(boxes: Boxes, devices: int) -> _Turns | None:
    """Return the first closed form that needs as few rounds as these senders allow, or None if none
    does."""
    grouped = _grouped(boxes)
    if grouped.several and not grouped.exact:
        return None
    least = _least(boxes, grouped.group)
    modulus = max(int(boxes.tile.max(initial=0)), int(boxes.source.max(initial=0))) + 1
    for kind in KINDS:
        number = _closed(kind, boxes, devices, modulus)
        turns = _Turns(kind, boxes, grouped, number, modulus)
        if _is_schedule(boxes, grouped.group, number) and turns.count == least:
            return turns
    return None


def _spread(exchange: Exchange, boxes: Boxes) -> Boxes:
    """Return the boxes of whole tiles with newly chosen senders. The devices that have a shard send
    numbers of boxes of a shape that differ by at most one; a device keeps its part of its own
    target shard."""
    holders = ranks_by_shard(exchange, exchange.source)
    shard = np.empty(exchange.ranks.size, dtype=np.int64)
    for number, ranks in enumerate(holders):
        shard[ranks] = number
    sender = boxes.sender.copy()
    for alike in split_by(_grouped(boxes).group * len(holders) + shard[sender]):
        own, local = holders[shard[sender[alike[0]]]], boxes.local[alike]
        idle = own[~np.isin(own, sender[alike[local]])]
        away = alike[~local]
        sender[away] = np.concatenate([idle, np.resize(own, away.size)])[: away.size]
    return replace(boxes, sender=sender)


def _coloured(boxes: Boxes) -> _Turns:
    grouped = _grouped(boxes)
    number = np.zeros_like(grouped.group)
    for each in np.unique(grouped.group):
        mine = grouped.group == each
        ends = boxes.sender[mine], boxes.receiver[mine]
        number[mine] = colouring(*ends, boxes.shape[mine].prod(axis=1), max(map(_most, ends)))
    return _Turns("table", boxes, grouped, number)


def _least(boxes: Boxes, group: Integers) -> int:
    """Return a lower bound on the number of rounds: the most boxes of each shape that one device
    sends or receives, summed over shapes."""
    return sum(
        max(_most(ends[group == each]) for ends in (boxes.sender, boxes.receiver))
        for each in np.unique(group)
    )


def _join(exchange: Exchange, turns: _Turns) -> Join | None:
    if turns.kind != "shards" or turns.grouped.several:
        return None
    grid = turns.boxes.grid(exchange.ranks.size)
    if grid is None:
        return None
    return Join(grid, turns.boxes.window, exchange.target.local_shape)


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
    """Return the number of elements that the busiest device receives from others, and that all
    devices receive."""
    volume = largest(moved.shape, turn).prod(axis=1)[turn]
    received = np.zeros(devices, dtype=np.int64)
    np.add.at(received, moved.receiver[~moved.local], volume[~moved.local])
    return int(received.max()), int(received.sum())
