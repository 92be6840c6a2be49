"""Enumerate transfers: the tiles of an exchange with their senders and receivers, as arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shardwright.ir.arrays import Integers
from shardwright.ir.exchange import Exchange, ids_of
from shardwright.ir.layout import DimLayout


@dataclass(frozen=True)
class Transfers:
    """The transfers of n tiles, or of n pieces of tiles.

    `sender`, `receiver`: the device ids, int64 [n]; equal for a local copy. `tensor`: the half-open
    ranges of the tile in the tensor, int64 [n, rank, 2]. `source`, `target`: the same ranges in the
    source shard and in the target shard.
    """

    sender: Integers
    receiver: Integers
    tensor: Integers
    source: Integers
    target: Integers

    def __len__(self) -> int:
        return int(self.sender.size)

    @property
    def is_local(self) -> npt.NDArray[np.bool_]:
        """Whether each transfer is a copy within a device, bool [n]."""
        local: npt.NDArray[np.bool_] = self.sender == self.receiver
        return local

    @property
    def elements(self) -> Integers:
        """The number of elements in each transfer, int64 [n]."""
        widths = self.tensor[:, :, 1] - self.tensor[:, :, 0]
        volume: Integers = np.prod(widths, axis=1, dtype=np.int64)
        return volume


def enumerate_transfers(exchange: Exchange) -> Transfers:
    """Return every transfer of an exchange, sorted by sender, receiver and position in the
    tensor."""
    shard, wanted, low, high = _tiles(exchange)
    receiver, slot = _receivers(exchange, wanted)
    shard, low, high = shard[slot], low[slot], high[slot]
    holder = exchange.source_position_of(receiver)
    held = holder >= 0
    for dim, index in zip(exchange.source.dims, shard.T, strict=True):
        held &= dim.index(holder) == index
    parts = [_box_transfers(exchange, holder[held], receiver[held], low[held], high[held])]
    shard, receiver, low, high = (a[~held] for a in (shard, receiver, low, high))
    for piece in range(exchange.rule.pieces):
        cut_low, cut_high = low.copy(), high.copy()
        if low.shape[1]:
            axis = exchange.rule.cut
            start, end = exchange.piece(high[:, axis] - low[:, axis], piece)
            cut_low[:, axis], cut_high[:, axis] = low[:, axis] + start, low[:, axis] + end
        sender = exchange.holder(tuple(shard.T), receiver, piece) + 0 * receiver
        full = np.all(cut_high > cut_low, axis=1)
        chosen = (sender[full], receiver[full], cut_low[full], cut_high[full])
        parts.append(_box_transfers(exchange, *chosen))
    return _ordered(parts)


def _tiles(exchange: Exchange) -> tuple[Integers, Integers, Integers, Integers]:
    """Return all n tiles, the products of the tiles of each dimension, as four arrays [n, dims]:
    the indices of source and target shards, and the low and high ends of the tiles."""
    pairs = [dim.pairs for dim in exchange.dims]
    counts = [pair.source.size for pair in pairs]
    number = np.arange(int(np.prod(counts, dtype=np.int64)), dtype=np.int64)
    picks = np.unravel_index(number, counts) if counts else ()
    columns = [
        [getattr(pair, name)[pick] for pair, pick in zip(pairs, picks, strict=True)]
        for name in ("source", "target", "low", "high")
    ]
    shape = (number.size, len(pairs))
    stacked = [np.stack(c, axis=1) if c else np.empty(shape, dtype=np.int64) for c in columns]
    return stacked[0], stacked[1], stacked[2], stacked[3]


def _receivers(exchange: Exchange, wanted: Integers) -> tuple[Integers, Integers]:
    """Return two arrays: the target positions of all replicas of the tiles' target shards, and the
    number of the tile of each. `wanted`: the index of the target shard of each tile, [n, dims]."""
    replicas = exchange.target.replicas
    row = np.repeat(np.arange(wanted.shape[0], dtype=np.int64), replicas)
    number = np.tile(np.arange(replicas, dtype=np.int64), wanted.shape[0])
    return exchange.target.position(tuple(wanted[row].T), number) + 0 * number, row


def _box_transfers(
    exchange: Exchange,
    sender: Integers,
    receiver: Integers,
    low: Integers,
    high: Integers,
) -> Transfers:
    seen = slice(exchange.source.hidden, None)
    tensor = np.stack([low, high], axis=2)
    source_low = _starts(exchange.source.dims, sender)
    target_low = _starts(exchange.target.dims, receiver)
    return Transfers(
        ids_of(exchange.source.mesh)[sender],
        ids_of(exchange.target.mesh)[receiver],
        tensor[:, seen],
        (tensor - source_low[:, :, None])[:, seen],
        (tensor - target_low[:, :, None])[:, seen],
    )


def _starts(dims: tuple[DimLayout, ...], position: Integers) -> Integers:
    """Return the start of the shard at each of n positions along each dimension: [n, dims]."""
    starts = np.empty((position.size, len(dims)), dtype=np.int64)
    for axis, dim in enumerate(dims):
        starts[:, axis] = dim.intervals[0][dim.index(position)]
    return starts


def _ordered(parts: list[Transfers]) -> Transfers:
    names = ("sender", "receiver", "tensor", "source", "target")
    joined = [np.concatenate([getattr(part, name) for part in parts]) for name in names]
    starts = tuple(joined[2][:, axis, 0] for axis in reversed(range(joined[2].shape[1])))
    order = np.lexsort((*starts, joined[1], joined[0]))
    return Transfers(*(array[order] for array in joined))
