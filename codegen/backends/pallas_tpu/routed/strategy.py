"""The forwarding forms. A v5e cannot send directly to every receiver, so tiles travel over several
devices (`schedule.py`), in slots of one size that XLA packs and unpacks. If whole source shards are
boxes of target shards, no slots are needed (`kernel_forms/gathered.py`). If tiles need no packing,
only the devices in between need slots (`kernel_forms/relayed.py`)."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from shardwright.codegen.backends.pallas_tpu.figures import (
    Figures,
    least_traffic,
    relayout,
    width,
)
from shardwright.codegen.backends.pallas_tpu.form import Delivery, Form
from shardwright.codegen.backends.pallas_tpu.memory import default_view, padded_elements
from shardwright.codegen.backends.pallas_tpu.pieces import Sums, reaches, widest
from shardwright.codegen.backends.pallas_tpu.routed.options import Option
from shardwright.codegen.backends.pallas_tpu.routed.schedule import Push, RoutedSchedule
from shardwright.codegen.backends.pallas_tpu.routed.slot import Shape, Slot
from shardwright.codegen.backends.pallas_tpu.routed.ways import (
    Digits,
    Hop,
    Lines,
    Numbering,
)
from shardwright.ir.algebra.index import Integers
from shardwright.ir.transfers import enumerate_transfers

CHUNK = 1 << 18
"""The smallest chunk, in bytes. A link carries it in six microseconds, and has a latency of one
microsecond."""
WORD = 4
"""The smallest float, in bytes, that is packed as a float; smaller floats are packed as
integers."""
MOST_STEPS = 64
"""The most chunks over all moves, if moves are cut. Each chunk needs its own semaphores."""


@dataclass(frozen=True)
class ForwardingForm(Form):
    """A forwarding form, and the data that travel. `window`: a shape in which every tile fits, by
    tensor dimension.

    `slot`: the layout of a slot, or of a box of a shard. A slot contains a tile or, in the spread
    form, the source shard. The schedule's places are slots, except in two forms: in the gathered
    form they are boxes of the target shard; in the relayed form the first places are boxes of the
    source shard, the next are boxes of the target shard, and the rest are slots. `held`: the
    contents of a slot that is not dense, for a comment.

    `source_reach`, `target_reach`: the extents of shards, padded so that they contain every window;
    `pads`: whether the source shard is padded; `incoming`: the most tiles of a target shard;
    `digits`, `lines`: as in `ways.Numbering`; `chunk_bytes`: the minimum size of a chunk; `share`:
    the load on the busiest links if halves travel separately, relative to the load if they travel
    together.
    """

    held: ClassVar[str]
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

    @classmethod
    @abstractmethod
    def options(cls, delivery: Delivery, window: Shape, source_reach: Shape) -> Iterator[Option]:
        """Yield the schedules of the form. `window`: a shape in which every tile fits;
        `source_reach`: the extents of source shards, padded so that they contain every window."""

    @classmethod
    def every(cls, delivery: Delivery) -> Iterator[Form]:
        """Yield the kernels of the form for a delivery. With straight hops or lines, yield only
        those that forward tiles: whole shards would leave copies on every device along their
        routes."""
        exchange, grid = delivery.exchange, delivery.grid
        assert grid is not None
        if grid.on_lines and not delivery.senders:  # a ring would make the same moves
            return
        if cls.facts.spreads and (grid.straight or grid.on_lines):
            return
        axes = range(len(exchange.dims))
        window = tuple(widest(exchange, axis) for axis in axes)
        source_reach, target_reach = reaches(exchange, window)
        for option in cls.options(delivery, window, source_reach):
            yield cls(
                view=option.slot.order if cls.facts.in_place else tuple(axes),
                itemsize=delivery.itemsize,
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
    def kind(self) -> tuple[object, ...]:
        apart = self.spreads and self.schedule.halves
        kind = self.name, self.view, self.slot.order, self.slot.dense, apart
        return *kind, self.digits, self.lines

    @property
    def spreads(self) -> bool:
        """Whether whole source shards travel."""
        return self.facts.spreads

    @property
    def in_place(self) -> bool:
        """Whether the kernel reads source shards and writes target shards without packing by
        XLA."""
        return self.facts.in_place

    @property
    def numbering(self) -> Numbering:
        """The conversion between device numbers and places."""
        return Numbering(self.digits, self.lines)

    @property
    def slots(self) -> int:
        """The number of the schedule's places that are slots rather than boxes of shards."""
        schedule = self.schedule
        if not self.in_place:
            return schedule.places
        return 0 if self.spreads else schedule.places - 2 * len(schedule.offsets)

    @property
    def is_cut(self) -> bool:
        """Whether any move sends only a range of a slot along its first dimension."""
        return self.schedule.halves or self.chunks > 1

    def like(self, other: Form) -> Form:
        """Return this form with its moves cut into chunks if those of `other` are, whatever the
        size of a chunk."""
        is_cut = isinstance(other, ForwardingForm) and other.chunks > 1
        return replace(self, chunk_bytes=0) if is_cut else self

    @cached_property
    def chunks(self) -> int:
        """The number of chunks of each move. A chunk that has arrived is forwarded while others are
        in flight."""
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
        """Yield, for every move, its round, its hop, the number of elements that each sender sends,
        and the senders."""
        for turn, hop, move, devices in self.schedule.made(self.digits):
            yield turn, hop, self.carried(move, devices), devices

    def carried(
        self, move: Push, devices: Integers, span: tuple[int, int] | None = None
    ) -> Integers:
        """Return the number of elements that each sender of a move puts on links; `span`: the range
        sent along a slot's first dimension, by default the range of the move's halves."""
        begin, extent = self.slot.part(move.halves)
        low, high = span or (begin, begin + extent)
        whole = self.slot.sent(move.halves)
        return np.full(devices.size, whole * (high - low) // max(extent, 1))

    @cached_property
    def sent(self) -> int:
        """The number of elements that all devices send in all rounds."""
        return sum(int(sizes.sum()) for _, _, sizes, _ in self.hops())

    @cached_property
    def received(self) -> int:
        """The number of elements that the busiest device receives in all rounds."""
        into = np.zeros(self.numbering.size, dtype=np.int64)
        for _, hop, sizes, devices in self.hops():
            into[hop.to(devices)] += sizes
        return int(into.max(initial=0))

    def figures(self, sums: Sums) -> Figures:
        """Return the form's traffic. Every hop reads one slot and writes one. If XLA packs tiles,
        it also pads shards, views small floats as integers, and fills and empties every slot;
        otherwise devices copy the data that they keep."""
        exchange, itemsize, schedule = sums.exchange, self.itemsize, self.schedule
        slot, devices = self.slot.elements, exchange.ranks.size
        moves = self.chunks * sum(each.size for *_, each in self.hops())
        kept = devices * (self.incoming > len(schedule.offsets))
        if self.in_place and not self.spreads:
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
        viewed = 2 * own if self.itemsize < WORD else 0  # bitcasts floats to integers
        shards = (viewed + (own + reach if self.pads else 0)) * source.mesh.size
        shards += 2 * self._padded(self.target_reach) * target.mesh.size
        filled = sum(map(len, schedule.senders)) or len(schedule.starts) * devices
        packed = filled * (held + slot) + schedule.places * slot * devices
        read = window if self.spreads else slot
        if self.spreads and self.slot.dense:
            read += slot + held  # XLA relays out the shard's rows for every tile
        # XLA reads a window and writes it, in a single pass if it consists of whole memory tiles.
        put = 2 if self.window[-2:] == self.target_reach[-2:] and len(self.window) > 2 else 4
        unpacked = self.incoming * (read + put * window) * target.mesh.size
        return replace(
            wire,
            hbm_bytes=itemsize * (2 * self.sent + packed + unpacked + shards),
            chunks=2 * filled + moves + 2 * self.incoming * target.mesh.size,
        )

    def _padded(self, shape: Shape) -> int:
        return padded_elements(shape, default_view(shape, self.itemsize), self.itemsize)
