"""The relayed form: senders send tiles straight from source shards, and the last hop writes them
straight into target shards.

If all tiles have the same shape and are aligned in both shards, XLA need not pack or assemble them:
only the devices in between need slots.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shardwright.codegen.backends.pallas_tpu.facts import FORWARDING, FormFacts
from shardwright.codegen.backends.pallas_tpu.figures import relayout
from shardwright.codegen.backends.pallas_tpu.form import Delivery
from shardwright.codegen.backends.pallas_tpu.kernel_text import KernelRequest, ProgramText
from shardwright.codegen.backends.pallas_tpu.memory import View, round_up, tiling, views
from shardwright.codegen.backends.pallas_tpu.pieces import widest
from shardwright.codegen.backends.pallas_tpu.routed.kernel import ForwardingKernel
from shardwright.codegen.backends.pallas_tpu.routed.options import Option, of_tiles
from shardwright.codegen.backends.pallas_tpu.routed.schedule import Push, RoutedSchedule
from shardwright.codegen.backends.pallas_tpu.routed.slot import Shape, Slot
from shardwright.codegen.backends.pallas_tpu.routed.text import ForwardText, Parts, at, forward_text
from shardwright.ir.algebra.index import Integers
from shardwright.ir.exchange import Exchange
from shardwright.ir.transfers import enumerate_transfers

FLAT_TILE = 4096
"""The number of elements in a memory tile of a vector of bytes, which is a multiple of the tiles of
wider elements."""


class Relayed(ForwardingKernel):
    """The relayed form of an exchange."""

    facts: ClassVar[FormFacts] = FormFacts(
        name="relayed",
        rank=7,
        does="tiles go from device to device, out of source shards into target shards",
        kernels=FORWARDING,
        buffers="relays",
        support=("pallas_aligned",),
        in_place=True,
        forwards=True,
    )
    held: ClassVar[str] = "A tile."

    @classmethod
    def options(cls, delivery: Delivery, window: Shape, source_reach: Shape) -> Iterator[Option]:
        exchange, itemsize = delivery.exchange, delivery.itemsize
        rank = len(exchange.dims)
        found = (view for view in views(rank) if not unplaced(exchange, view, itemsize))
        view = min(found, key=lambda view: relayout(exchange, itemsize, view), default=None)
        if view is not None:
            tile = tuple(widest(exchange, axis) for axis in range(rank))
            slot = Slot.viewed(tile, itemsize, view)
            yield of_tiles(delivery, slot, apart=True, cut=rank > 1)

    def prove_places(self, exchange: Exchange, widths: Integers) -> None:
        wrong = unplaced(exchange, self.view, self.itemsize)
        self.expect(not wrong, wrong)
        self.expect(is_apart(self.schedule), "two tiles use the same place of a shard")
        self.expect(bool((widths == self.slot.held).all()), "a tile is not sent whole")
        super().prove_places(exchange, widths)

    def context(self, request: KernelRequest, program: ProgramText) -> RelayedText:
        parts, exchange, count = Parts(self), request.exchange, len(self.schedule.offsets)
        x, y = (parts.split(side.local_shape) for side in (exchange.source, exchange.target))
        forward, first = forward_text(parts, len(x) + len(y), "", request), parts.columns
        return RelayedText(
            forward,
            program,
            self.view,
            in_x=at("x", parts.inside(x, first)),
            in_y=at("y", parts.inside(y, first + len(x))),
            in_slots=at("slots", self._in_slots(parts)),
            whole_in_x=at("x", parts.inside(x, first, whole=True)),
            whole_in_y=at("y", parts.inside(y, first + len(x), whole=True)),
            keeps=request.host.some_local,
            last_row=forward.columns * len(self.schedule.moves),
            first_arrived=count,
            first_slot=2 * count,
        )

    def _in_slots(self, parts: Parts) -> list[str]:
        """Return the indices of the part of the slots that a move copies. Slots of vectors are
        stacked along one dimension, since tiled dimensions cannot be indexed."""
        shape = self.slot.shape
        if len(shape) > 1:
            return ["place", *parts.part()]
        begin = f"multiple(place * {round_up(shape[0], FLAT_TILE)}, {FLAT_TILE})"
        more, size = parts.span() if self.is_cut else ("", str(shape[0]))
        return [f"pl.ds({begin}{' + ' if more else ''}{more}, {size})"]


FORM = Relayed


@dataclass(frozen=True)
class RelayedText:
    """The context of the relayed form. `in_x`, `in_y`, `in_slots`: the part of the source shard x,
    of the target shard y and of the slots that a move copies, as expressions; `keeps`: whether any
    device keeps a tile; `whole_in_x`, `whole_in_y`: where that tile is in both shards; `last_row`:
    the row of `moves` for that tile; `first_arrived`, `first_slot`: the numbers of the first places
    in y and in the slots."""

    forward: ForwardText
    program: ProgramText
    view: View
    in_x: str
    in_y: str
    in_slots: str
    whole_in_x: str
    whole_in_y: str
    keeps: bool
    last_row: int
    first_arrived: int
    first_slot: int


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
