"""Forwarding forms: a v5e cannot send directly to every receiver, so tiles travel over several
devices (`schedule.py`), in slots of one size that XLA packs and unpacks. If the moved data are
parts of target shards there are no slots (`gathered.py`), and if tiles need no packing only tiles
in flight are in slots (`relayed.py`)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from shardwright.codegen.backends.pallas_tpu.figures import (
    Figures,
    least_traffic,
    relayout,
    width,
)
from shardwright.codegen.backends.pallas_tpu.memory import (
    View,
    default_view,
    padded_elements,
)
from shardwright.codegen.backends.pallas_tpu.pieces import Sums
from shardwright.codegen.backends.pallas_tpu.routed.grid import Grid
from shardwright.codegen.backends.pallas_tpu.routed.options import Name, options
from shardwright.codegen.backends.pallas_tpu.routed.schedule import Push, RoutedSchedule
from shardwright.codegen.backends.pallas_tpu.routed.slot import Shape, Slot
from shardwright.codegen.backends.pallas_tpu.routed.ways import (
    Digits,
    Hop,
    Lines,
    Numbering,
)
from shardwright.codegen.backends.pallas_tpu.slots import reaches, widest
from shardwright.codegen.text.index_functions import IndexFunction
from shardwright.ir.algebra.index import Integers
from shardwright.ir.exchange import Exchange
from shardwright.ir.transfers import enumerate_transfers

CHUNK = 1 << 18
"""Bytes that a chunk of a move has at least: a link carries them in six microseconds, of which a
message takes one to get there."""
WORD = 4
"""Floats of at least this many bytes are packed as floats, smaller ones as integers."""
MOST_STEPS = 64
"""Most chunks of moves if moves are cut: each needs its own semaphores."""


IN_PLACE = ("relayed", "gathered")
"""Forms for which XLA need not pack anything."""


@dataclass(frozen=True)
class Routed:
    """`window`: the shape that fits a tile, by tensor dimension; a slot holds one or (spread) the
    source shard extended to the reach of windows; or places of the schedule are boxes of the
    target shard, with a slot's shape (gathered), or first of the source shard, then of the
    target shard, then slots (relayed). `source_reach`, `target_reach`: the reach of windows into
    shards, at least to their ends; `pads`: whether beyond that of the source shard; `incoming`:
    the tiles of a target shard; `digits`, `lines`: as in `ways.Numbering`; `chunk_bytes`:
    the smallest chunk of a move; `share`: the load of the busiest links with separate halves,
    relative to joint ones."""

    name: Name
    view: View
    itemsize: int
    digits: Digits
    schedule: RoutedSchedule
    window: Shape
    slot: Slot
    source_reach: Shape
    target_reach: Shape
    pads: bool
    incoming: int
    lines: Lines = ()
    chunk_bytes: int = CHUNK
    share: float = 1.0

    @staticmethod
    def every(exchange: Exchange, itemsize: int, grid: Grid) -> Iterator[Routed]:
        """Yield the forms of an exchange; with straight hops, only the forms that move pieces,
        because shards leave copies on every device on their way."""
        axes = range(len(exchange.dims))
        window = tuple(widest(exchange, axis) for axis in axes)
        source_reach, target_reach = reaches(exchange, window)
        for option in options(exchange, itemsize, grid, window, source_reach):
            yield Routed(
                name=option.name,
                view=option.slot.order if option.name in IN_PLACE else tuple(axes),
                itemsize=itemsize,
                digits=grid.digits,
                lines=grid.numbering.lines,
                schedule=option.schedule,
                window=window,
                slot=option.slot,
                source_reach=source_reach,
                target_reach=target_reach,
                pads=source_reach != exchange.source.local_shape,
                incoming=math.prod(tiles.max_peers_of_target for tiles in exchange.dims)
                * exchange.rule.pieces,
                share=option.share,
            )

    @property
    def spreads(self) -> bool:
        """Return whether whole source shards travel."""
        return self.name in ("gathered", "spread")

    @property
    def in_place(self) -> bool:
        """Return whether data starts and ends in shards without packing by XLA."""
        return self.name in IN_PLACE

    @property
    def numbering(self) -> Numbering:
        """The conversion between device numbers and places."""
        return Numbering(self.digits, self.lines)

    @property
    def slots(self) -> int:
        """The number of the schedule's places with their own memory."""
        ends = {"gathered": self.schedule.places, "relayed": 2 * len(self.schedule.offsets)}
        return self.schedule.places - ends.get(self.name, 0)

    @property
    def is_cut(self) -> bool:
        """Return whether moves state the sent range of a slot along its first dimension."""
        return self.schedule.halves or self.chunks > 1

    def cut_as(self, other: Routed) -> Routed:
        """Return this form with its moves cut like the other's, however short."""
        return self if other.chunks == 1 else replace(self, chunk_bytes=0)

    @cached_property
    def chunks(self) -> int:
        """The number of chunks of each move: the chunks of a tile that have arrived are forwarded
        while the others are in flight."""
        slot, unit, moves = self.slot, self.slot.unit, self.schedule.moves
        if len(self.schedule.rounds) == 1:
            return 1
        extents = [slot.part(move.halves)[1] for move in moves]
        least = self.itemsize * min(slot.sent(move.halves) for move in moves)
        fits = (
            chunks
            for chunks in (4, 2)
            if len(moves) * chunks <= MOST_STEPS
            and least >= chunks * self.chunk_bytes
            and all(extent >= chunks * unit and extent % unit == 0 for extent in extents)
        )
        return next(fits, 1)

    def hops(self) -> Iterator[tuple[int, Hop, Integers, Integers]]:
        """Yield every move: its round, its hop, the elements that each sender sends, and the
        senders."""
        for turn, hop, move, devices in self.schedule.made(self.digits):
            yield turn, hop, self.carried(move, devices), devices

    def carried(
        self, move: Push, devices: Integers, span: tuple[int, int] | None = None
    ) -> Integers:
        """Return the elements of a move on links, by sender; `span`: the range along a slot's first
        dimension."""
        begin, extent = self.slot.part(move.halves)
        low, high = span or (begin, begin + extent)
        whole = self.slot.sent(move.halves)
        return np.full(devices.size, whole * (high - low) // max(extent, 1))

    @cached_property
    def sent(self) -> int:
        """Elements sent by all devices in all rounds."""
        return sum(int(sizes.sum()) for _, _, sizes, _ in self.hops())

    @cached_property
    def received(self) -> int:
        """Elements received by the busiest device in all rounds."""
        into = np.zeros(self.numbering.size, dtype=np.int64)
        for _, hop, sizes, devices in self.hops():
            into[hop.to(devices)] += sizes
        return int(into.max(initial=0))

    def functions(self, exchange: Exchange) -> tuple[IndexFunction, ...]:
        """Return no further index functions: this form needs none."""
        return ()

    def figures(self, sums: Sums) -> Figures:
        """Return the form's traffic: every hop reads and writes a slot on every device. To
        pack, XLA pads shards, views small floats as integers, and fills and empties every slot;
        without packing, devices copy the data they keep."""
        exchange, itemsize, schedule = sums.exchange, self.itemsize, self.schedule
        slot, devices = self.slot.elements, exchange.ranks.size
        moves = self.chunks * sum(each.size for *_, each in self.hops())
        kept = devices * (self.incoming > len(schedule.offsets))
        if self.name == "relayed":
            kept = int(exchange.once(enumerate_transfers).is_local.sum())
        wire = Figures(
            wire_bytes=itemsize * self.sent,
            wire_max=itemsize * self.received,
            exact_bytes=itemsize * sums.remote(width),
            hbm_bytes=2 * itemsize * (self.sent + slot * kept),
            hbm_least=least_traffic(sums, itemsize),
            staging_bytes=itemsize * slot * self.slots,
            chunks=moves + kept,
            relayout_bytes=relayout(exchange, itemsize, self.view) if self.in_place else 0,
        )
        if self.in_place:
            return wire
        source, target = exchange.source, exchange.target
        held, window = self._padded(self.slot.held), self._padded(self.window)
        own, reach = map(self._padded, (source.local_shape, self.source_reach))
        viewed = 2 * own if self.itemsize < WORD else 0  # floats, as integers
        shards = (viewed + (own + reach if self.pads else 0)) * source.mesh.size
        shards += 2 * self._padded(self.target_reach) * target.mesh.size
        filled = sum(map(len, schedule.senders)) or len(schedule.starts) * devices
        packed = filled * (held + slot) + schedule.places * slot * devices
        read = window if self.spreads else slot
        if self.spreads and self.slot.dense:
            read += slot + held  # rows of a shard are put in their places again for every tile
        # XLA selects a window and then writes it, in one pass if it consists of whole memory tiles.
        put = 2 if self.window[-2:] == self.target_reach[-2:] and len(self.window) > 2 else 4
        unpacked = self.incoming * (read + put * window) * target.mesh.size
        return replace(
            wire,
            hbm_bytes=itemsize * (2 * self.sent + packed + unpacked + shards),
            chunks=2 * filled + moves + 2 * self.incoming * target.mesh.size,
        )

    def _padded(self, shape: Shape) -> int:
        return padded_elements(shape, default_view(shape, self.itemsize), self.itemsize)
