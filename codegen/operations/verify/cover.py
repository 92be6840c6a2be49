"""Check the transfers of a module on disk at full size, on all its devices. Used in workers only.

No data moves here. The module's own functions give the range of every shard, which is compared with
the oracle, and the positions of senders and receivers. A box is the intersection of two shards. The
boxes of every receiver must be disjoint and fill its target shard, and both ends must list the same
boxes. So every target element is written once, from the source element with the same index.

The boxes are computed in arrays. For a sample of the devices, they are compared with the exchange's
own lists.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from shardwright.codegen.checks.case import Case, GroupCase
from shardwright.codegen.checks.compare import MismatchError, expect, said_of
from shardwright.codegen.operations.verify.transfers import Ranges as Integers
from shardwright.codegen.operations.verify.transfers import intervals, partition_fault

LISTED = 32
"""The most positions for which the boxes of every position are compared with the exchange's
transfers. For more, only a sample is compared."""


CHECK = "exact cover"


def covered(hosts: Iterable[Any]) -> tuple[str, ...]:
    """Check the exchanges of a module's hosts. Return the check's name, or nothing for a module
    that only uses collectives."""
    exchanges = [host.exchange for host in hosts]
    if None in exchanges:
        return ()
    for exchange in exchanges:
        check_cover(exchange)
    return (CHECK,)


def covered_group(module: Any, group: GroupCase) -> tuple[str, ...]:
    """Check the shards and transfers of every tensor of a group against its description, and return
    the check's name. Equal checks of several tensors are made only once."""
    host, moves_of = module._HOST, import_module(module.hosts_of.__module__).moves_of
    expect("NAMES", list(module.NAMES), [case.name for case in group.members])
    moves: dict[int, Any] = {}
    alike: set[object] = set()
    for case, kind in zip(group.members, host.kind_of, strict=True):
        with said_of(case.name):
            if kind not in moves:
                moves[kind] = moves_of(host.kinds[kind])
                check_cover(moves[kind])
            what = kind, case.shape, case.dtype, case.source, case.target
            if what not in alike:
                alike.add(what)
                expect("dtype", str(host.kinds[kind].dtype).removeprefix("torch."), case.dtype)
                check_boxes(moves[kind], case)
    return (CHECK,)


def check_boxes(exchange: Any, case: Case) -> None:
    """Raise MismatchError unless the boxes of shards match a description."""
    for side, placement in ((exchange.source, case.source), (exchange.target, case.target)):
        expect("device ids", list(side.ids), list(placement.device_ids))
        boxes = _boxes(side)
        held = intervals(placement, case.shape)
        for box, device in zip(boxes, side.ids, strict=True):
            wanted = held[device] if len(held[device]) else np.array([[0, 1]])
            same = (box == wanted).all(axis=1) | (_empty(box) & _empty(wanted))
            if not same.all():
                expect(f"box of device {device}", box.tolist(), wanted.tolist())


def check_cover(exchange: Any) -> None:
    """Raise MismatchError, naming a device, unless an exchange covers every target shard."""
    cover = _Cover.of(exchange)
    received = [cover.received(receiver) for receiver in range(len(exchange.target.ids))]
    if exchange._receivers is not None:
        cover.check_senders(np.concatenate([np.empty(0, np.int64), *received]))


@dataclass(frozen=True)
class _Cover:
    """An exchange, and the boxes of its shards by position: int64 [positions, dimensions, 2].
    `proved`: a cache of the boxes and tiles in which `partition_fault` found no fault."""

    exchange: Any
    source: Integers
    target: Integers
    proved: set[tuple[bytes, bytes]] = field(default_factory=set)

    @staticmethod
    def of(exchange: Any) -> _Cover:
        return _Cover(exchange, _boxes(exchange.source), _boxes(exchange.target))

    def received(self, receiver: int) -> Integers:
        """Check that a receiver's boxes fill its shard, and return their keys."""
        exchange, device = self.exchange, self.exchange.target.ids[receiver]
        sender, number = _peers(exchange._senders(receiver))
        self._check_positions(sender, len(self.source), f"device {device}: a sender")
        sender, number, tiles = self._tiles(sender, receiver, number)
        if exchange.is_empty(receiver):
            if len(tiles):
                raise MismatchError(
                    f"device {device}: it receives boxes for a term that has no value"
                )
            return np.empty(0, np.int64)
        box = self.target[receiver]
        fault = self._partition_fault(tiles - box[:, :1], box[:, 1] - box[:, 0])
        if fault:
            raise MismatchError(f"device {device}: the boxes that it receives {fault}")
        if receiver in _some(len(self.target)):
            self._check_listed(exchange.incoming(receiver), tiles, f"device {device} takes")
        return self._keys(sender, receiver, number)

    def check_senders(self, received: Integers) -> None:
        sent = [self._sent(sender) for sender in range(len(self.source))]
        keys = np.sort(np.concatenate([np.empty(0, np.int64), *sent]))
        received = np.sort(received)
        if np.array_equal(keys, received):
            return
        one_end = np.setxor1d(keys, received)
        if not len(one_end):  # a box is listed twice
            one_end = keys[1:][keys[1:] == keys[:-1]]
        who = "senders" if one_end[0] in keys else "receivers"
        pair = int(one_end[0]) // self._numbers
        sender, receiver = divmod(pair, len(self.target))
        ids = self.exchange.source.ids[sender], self.exchange.target.ids[receiver]
        said = "from device {} to device {}".format(*ids)
        raise MismatchError(f"only the {who} list a box {said}, or list it twice")

    def _sent(self, sender: int) -> Integers:
        exchange, device = self.exchange, self.exchange.source.ids[sender]
        receiver, number = _peers(exchange._receivers(sender))
        self._check_positions(receiver, len(self.target), f"device {device}: a receiver")
        receiver, number, tiles = self._tiles(sender, receiver, number)
        if sender in _some(len(self.source)):
            self._check_listed(exchange.outgoing(sender), tiles, f"device {device} sends")
        return self._keys(sender, receiver, number)

    def _tiles(
        self, sender: Integers | int, receiver: Integers | int, number: Integers
    ) -> tuple[Integers, Integers, Integers]:
        """Return the peers, piece numbers and boxes of non-empty tiles, of which one end is at a
        single position."""
        one, other = self.source[sender], self.target[receiver]
        low, high = np.maximum(one[..., 0], other[..., 0]), np.minimum(one[..., 1], other[..., 1])
        cut = self.exchange.cut
        if cut is not None:
            width, has = high[:, cut.dim] - low[:, cut.dim], number >= 0
            # The first `more` pieces of a tile have one unit more than the others.
            units, start = width // cut.unit, low[:, cut.dim].copy()
            step, more = units // cut.pieces, units % cut.pieces
            for ends, piece in ((low, number), (high, number + 1)):
                place = start + (piece * step + np.minimum(piece, more)) * cut.unit
                ends[has, cut.dim] = place[has]
        full = (high > low).all(axis=1)
        peers = sender if isinstance(receiver, int) else receiver
        assert not isinstance(peers, int)
        return peers[full], number[full], np.stack([low[full], high[full]], axis=2)

    def _partition_fault(self, tiles: Integers, extents: Integers) -> str:
        """Return why tiles do not fill a box that starts at zero, or "". Cached for equal tiles."""
        order = np.lexsort(_rows(tiles).T) if tiles.size else np.arange(len(tiles))
        key = extents.tobytes(), tiles[order].tobytes()
        if key in self.proved:
            return ""
        fault = partition_fault(tiles, np.stack([0 * extents, extents], axis=1))
        if not fault:
            self.proved.add(key)
        return fault

    @property
    def _numbers(self) -> int:
        """The number of distinct piece numbers, counting the number of a whole tile."""
        return 1 if self.exchange.cut is None else self.exchange.cut.pieces + 1

    def _keys(self, sender: Integers | int, receiver: Integers | int, number: Integers) -> Integers:
        """Return a unique number for each combination of sender, receiver and piece number."""
        pair: Integers = np.asarray(sender) * np.int64(len(self.target)) + receiver
        return pair * self._numbers + (number + 1 if self._numbers > 1 else 0)

    def _check_positions(self, positions: Integers, count: int, who: str) -> None:
        wrong = positions[(positions < 0) | (positions >= count)]
        if len(wrong):
            raise MismatchError(f"{who} has position {wrong[0]}, expected 0 to {count - 1}")

    def _check_listed(self, pieces: Iterable[Any], tiles: Integers, who: str) -> None:
        listed = sorted(tuple(piece.box) for piece in pieces)
        if listed != sorted(map(tuple, _rows(tiles).tolist())):
            raise MismatchError(f"{who} boxes that differ from the boxes at its positions")


def _boxes(side: Any) -> Integers:
    """Return the boxes of a side's shards. Empty ranges get zero width."""
    boxes = np.array([side.box(position) for position in range(len(side.ids))], dtype=np.int64)
    boxes = boxes.reshape(len(side.ids), -1, 2)
    boxes[..., 1] = np.maximum(boxes[..., 1], boxes[..., 0])
    return boxes


def _empty(box: Integers) -> npt.NDArray[np.bool_]:
    empty: npt.NDArray[np.bool_] = box[:, 0] == box[:, 1]
    return empty


def _rows(tiles: Integers) -> Integers:
    """Return boxes as rows of (low, high, low, high, ...)."""
    return tiles.reshape(len(tiles), 2 * tiles.shape[1])


def _peers(listed: Iterable[Any]) -> tuple[Integers, Integers]:
    """Return the positions in a list of peers, and the piece numbers, -1 for a whole tile."""
    peers = list(listed)
    if any(isinstance(each, tuple) for each in peers):
        pairs = [each if isinstance(each, tuple) else (each, None) for each in peers]
        numbers = [-1 if number is None else number for _, number in pairs]
        return np.array([peer for peer, _ in pairs], np.int64), np.array(numbers, np.int64)
    return np.array(peers, dtype=np.int64), np.full(len(peers), -1, np.int64)


@cache
def _some(count: int) -> frozenset[int]:
    """Return a sample of positions that includes both ends."""
    return frozenset({*range(0, count, max(count // LISTED, 1)), count - 1})
