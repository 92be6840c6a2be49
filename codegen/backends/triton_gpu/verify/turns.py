"""Compare the load on links over time, when kernels copy tiles in their own order, with the load in
the planned order.

All devices start at the same time and copy their tiles turn by turn; a turn takes as long as its
busiest sender. The planned order is derived here from the exchange's pieces: along each dimension,
a device's own shard determines the source shard with which it begins, and it ends with its own
shard if possible.
"""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from shardwright.codegen.checks import compare
from shardwright.codegen.checks.compare import MismatchError

Box = tuple[int, ...]
"""The half-open ranges of a box of the tensor: (low, high, low, high, ...)."""


def extents(box: Box) -> Box:
    return tuple(high - low for low, high in zip(box[::2], box[1::2], strict=True))


class Turns:
    """The number of elements that each sender sends to other devices, by turn."""

    def __init__(self) -> None:
        self._given: dict[int, Counter[int]] = {}

    def add(self, turn: int, sender: int, elements: int) -> None:
        """Add to the elements that a sender sends in a turn."""
        self._given.setdefault(turn, Counter())[sender] += elements

    @property
    def longest(self) -> int:
        """The elements of each turn's busiest sender, summed over turns."""
        return sum(max(given.values()) for given in self._given.values())


def check_turns(host: Any, copied: Turns) -> bool:
    """Check the order of an exchange's copies. Return whether it could be checked: False if the
    planned order is unknown. Raises MismatchError if links are busy for longer than in the planned
    order."""
    if not _is_numbered(host.exchange):
        return False
    _check_longest(copied, planned_turns(host.exchange))
    return True


def check_listed_turns(host: Any) -> None:
    """Check the order in which a group's kernel reads each tensor's shards. In the planned order, a
    device begins with the shard after its own (without a source shard: with the shard whose number
    is its target position) and continues in order of source positions.

    Raises MismatchError, naming the tensor, if links are busy for longer than in the planned
    order.
    """
    count = len(host.exchange.source.ids)
    tensors = range(len(host.names))
    copied, expected = ([Turns() for _ in tensors] for _ in range(2))
    for receiver, device in enumerate(host.exchange.target.ids):
        read: dict[tuple[int, int], int] = {}
        for entry in host.processes.listed(device, "cpu").entries:
            tensor, sender = divmod(entry.source, count)
            size = host.processes.moves[tensor].itemsize
            elements = entry.columns * entry.rows // size
            read[tensor, sender] = read.get((tensor, sender), 0) + elements
        own = host.exchange.source_position(device)
        first = receiver if own < 0 else own + 1
        for tensor in tensors:
            order = [(sender, elements) for (at, sender), elements in read.items() if at == tensor]
            _add_others(copied[tensor], order, own)
            order.sort(key=lambda each: (each[0] - first) % count)
            _add_others(expected[tensor], order, own)
    for name, found, least in zip(host.names, copied, expected, strict=True):
        with compare.said_of(name):
            _check_longest(found, least)


def _add_others(turns: Turns, order: Sequence[tuple[int, int]], own: int) -> None:
    """Record the elements that a device reads from others, one shard per turn; `order`: (sender,
    elements) of each turn; `own`: the device's own source position."""
    for turn, (sender, elements) in enumerate(order):
        if sender != own:
            turns.add(turn, sender, elements)


def _check_longest(copied: Turns, expected: Turns) -> None:
    if copied.longest > expected.longest:
        raise MismatchError(
            f"wrong order of tiles: the busiest senders of all turns send {copied.longest} "
            f"elements together, expected at most {expected.longest}, as in the plan's order"
        )


def _is_numbered(exchange: Any) -> bool:
    """Return whether the planned order is known: no source shard is empty, and every target
    position is also a source position."""
    positions = range(len(exchange.source.ids))
    held = (math.prod(extents(exchange.source.box(position))) for position in positions)
    return len(exchange.target.ids) <= len(positions) and all(held)


def planned_turns(exchange: Any) -> Turns:
    """Return the turns of an exchange in the planned order, which must be known."""
    order, found = _Order(exchange), Turns()
    pieces = exchange.cut.pieces if exchange.cut else 1
    for receiver in range(len(exchange.target.ids)):
        for piece in exchange.incoming(receiver):
            if exchange.source.ids[piece.sender] != exchange.target.ids[receiver]:
                turn = order.turn(receiver, piece.sender) * pieces + (piece.number or 0)
                found.add(turn, piece.sender, math.prod(extents(order.seen(piece.box))))
    return found


class _Order:
    def __init__(self, exchange: Any) -> None:
        self._exchange = exchange
        count = len(exchange.source.ids)
        boxes = [self.seen(exchange.source.box(position)) for position in range(count)]
        starts = zip(*(box[::2] for box in boxes), strict=True)
        self._starts = [sorted({*each}) for each in starts]
        met = [self._met(receiver) for receiver in range(len(exchange.target.ids))]
        self._firsts = [[numbers[0] for numbers in each] if each else [] for each in met]
        along = list(zip(*filter(None, met), strict=True))
        self._counts = [max(numbers[-1] - numbers[0] + 1 for numbers in each) for each in along]
        alike = tuple(exchange.source.ids) == tuple(exchange.target.ids)
        self._shifts = [
            int(alike and not any(numbers[0] % count for numbers in each))
            for each, count in zip(along, self._counts, strict=True)
        ]

    def seen(self, box: Box) -> Box:
        """Return the ranges of a box along the tensor's dimensions, without the dimensions of
        terms."""
        return box[2 * len(self._exchange.hidden) :]

    def turn(self, receiver: int, sender: int) -> int:
        found = 0
        ends = self._numbers(sender), self._firsts[receiver], self._numbers(receiver)
        for number, first, own, shift, count in zip(*ends, self._shifts, self._counts, strict=True):
            found = found * count + (number - first - own - shift) % count
        return found

    def _met(self, receiver: int) -> list[list[int]]:
        """Return, for each dimension, the numbers of the source shards that a receiver's target
        shard overlaps, or an empty list if that shard is empty."""
        senders = [piece.sender for piece in self._exchange.incoming(receiver)]
        return [sorted({*each}) for each in zip(*map(self._numbers, senders), strict=True)]

    def _numbers(self, position: int) -> list[int]:
        lows = self.seen(self._exchange.source.box(position))[::2]
        pairs = zip(self._starts, lows, strict=True)
        return [bisect.bisect_left(starts, low) for starts, low in pairs]
