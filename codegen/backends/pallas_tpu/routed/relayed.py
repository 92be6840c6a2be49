"""The relayed form: senders send tiles straight from source shards, and the last hop writes them
straight into target shards.

If all tiles have the same shape and are aligned in both shards, XLA need not pack or assemble them:
only the devices in between need slots.
"""

from __future__ import annotations

import math

import numpy as np

from shardwright.codegen.backends.pallas_tpu.direct import tiling
from shardwright.codegen.backends.pallas_tpu.facts import FORWARDING, FormFacts
from shardwright.codegen.backends.pallas_tpu.memory import View
from shardwright.codegen.backends.pallas_tpu.routed.schedule import Push, RoutedSchedule
from shardwright.ir.exchange import Exchange
from shardwright.ir.transfers import enumerate_transfers

RELAYED = FormFacts(
    name="relayed",
    does="tiles go from device to device, out of source shards into target shards",
    kernels=FORWARDING,
    buffers="relays",
    in_place=True,
    forwards=True,
)


def unplaced(exchange: Exchange, view: View, itemsize: int) -> str:
    """Return why tiles cannot move without packing, or "" if they can.

    All tiles must have the same shape, start in both shards at multiples of it and of the memory
    tiling, and fill every target shard. Tiles of vectors must be whole memory tiles, since their
    slots are stacked in one buffer.
    """
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
        whole = (shape == side.local_shape) & (len(view) > 1)
        if not (aligned | whole).all():
            return "a tile is not aligned"
    return ""


def is_apart(schedule: RoutedSchedule) -> bool:
    """Return whether the first n places of a schedule, one per offset, can be boxes of source
    shards (devices only send from them) and the next n boxes of target shards (devices only receive
    into them)."""
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
