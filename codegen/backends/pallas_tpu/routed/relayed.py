"""Where tiles leave source shards as they stand there, and end in target shards as they belong
there: the relayed form.

Where all tiles have one shape and are aligned at both ends, and every device has one to send over
each offset, XLA packs nothing and puts nothing together: only what is on its way is in slots.
"""

from __future__ import annotations

import math

import numpy as np

from shardwright.codegen.backends.pallas_tpu.direct import tiling
from shardwright.codegen.backends.pallas_tpu.memory import View
from shardwright.codegen.backends.pallas_tpu.routed.grid import numbered, sent_tiles
from shardwright.codegen.backends.pallas_tpu.routed.schedule import Push, RoutedSchedule
from shardwright.codegen.backends.pallas_tpu.routed.ways import Digits, offsets_of
from shardwright.ir.exchange import Exchange
from shardwright.ir.transfers import enumerate_transfers


def unplaced(exchange: Exchange, digits: Digits, view: View, itemsize: int) -> str:
    """Return what keeps tiles from going as they stand, or the empty string. They go so if all have
    one shape, start at multiples of it and of the tiling of memory in both shards, fill every
    target shard, and every device has one to send over each offset."""
    if exchange.rule.pieces > 1:
        return "tiles are cut into pieces"
    moved = exchange.once(enumerate_transfers)
    shapes = moved.tensor[:, :, 1] - moved.tensor[:, :, 0]
    if (shapes != shapes[0]).any():
        return "tiles have several shapes"
    shape, room = shapes[0], exchange.target.local_shape
    into = np.unique(moved.receiver, return_counts=True)[1] * math.prod(shape.tolist())
    if into.size < exchange.target.mesh.size or (into != math.prod(room)).any():
        return "tiles do not fill a target shard"
    units = np.ones(len(view), dtype=np.int64)
    units[list(view[-2:])] = tiling(itemsize, len(view))
    for side, ranges in ((exchange.source, moved.source), (exchange.target, moved.target)):
        start = ranges[:, :, 0]
        if (start % shape).any():
            return "a tile is not at a multiple of its extents"
        aligned = (start % units == 0) & (shape % units == 0)
        if not (aligned | (shape == side.local_shape)).all():
            return "a tile is not aligned"
    return _unsent(exchange, digits)


def _unsent(exchange: Exchange, digits: Digits) -> str:
    sender, receiver, _ = exchange.once(sent_tiles)
    over = offsets_of(sender, receiver, digits)
    pairs = np.unique(np.stack([sender, over]), axis=1)
    wanted = np.unique(over).size * numbered(exchange).size
    return (
        "" if pairs.shape[1] == over.size == wanted else "not every device sends over each offset"
    )


def is_apart(schedule: RoutedSchedule) -> bool:
    """Return whether of so many offsets the first places are what goes over each, in which nothing
    comes, and the next what has come over each, from which nothing goes."""
    count = len(schedule.offsets)
    ends = tuple(range(2 * count))
    moves = schedule.moves
    return (
        (*schedule.starts, *schedule.arrives) == ends
        and all(move.there >= count and not count <= move.here < 2 * count for move in moves)
        and all(
            move.number in (move.here, move.there - count) for move in moves if _ends(move, count)
        )
    )


def _ends(move: Push, count: int) -> bool:
    return move.here < count or move.there < 2 * count
