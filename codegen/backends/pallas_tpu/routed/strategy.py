"""The routed and spread forms: a v5e does not send directly to every receiver, so that tiles go
from device to device (`schedule.py`), in slots of one size that XLA packs and unpacks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from shardwright.codegen.backends.pallas_tpu.figures import Figures, least_traffic, width
from shardwright.codegen.backends.pallas_tpu.memory import View, default_view, padded_elements
from shardwright.codegen.backends.pallas_tpu.pieces import Sums
from shardwright.codegen.backends.pallas_tpu.routed.grid import Grid
from shardwright.codegen.backends.pallas_tpu.routed.schedule import Push, RoutedSchedule
from shardwright.codegen.backends.pallas_tpu.routed.schedule import routed as routed_schedule
from shardwright.codegen.backends.pallas_tpu.routed.schedule import spread as spread_schedule
from shardwright.codegen.backends.pallas_tpu.routed.slot import Shape, Slot
from shardwright.codegen.backends.pallas_tpu.routed.turns import Freight
from shardwright.codegen.backends.pallas_tpu.routed.ways import Digits, Hop
from shardwright.codegen.backends.pallas_tpu.slots import reaches, widest
from shardwright.codegen.emit.index_functions import IndexFunction
from shardwright.ir.algebra.index import Integers
from shardwright.ir.exchange import Exchange

ROUND_BYTES = 1 << 16
"""What a round costs beside its bytes, as bytes of a link: its devices wait for one another, some
microsecond. An estimate, as the latencies of `codegen/hardware/presets.py` are."""


@dataclass(frozen=True)
class Routed:
    """`window`: what a tile fits, by dimension of the tensor; a slot holds one or (spread) the
    source shard as far as windows reach. `source_reach`, `target_reach`: how far windows reach into
    shards, at least to their ends; `pads`: whether beyond that of the source shard; `incoming`: the
    tiles of a target shard.
    """

    name: Literal["routed", "spread"]
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

    @staticmethod
    def every(exchange: Exchange, itemsize: int, grid: Grid) -> Iterator[Routed]:
        """Yield the forms of an exchange."""
        axes = range(len(exchange.dims))
        window = tuple(widest(exchange, axis) for axis in axes)
        source_reach, target_reach = reaches(exchange, window)
        widths = grid.widths(exchange)
        spread = spread_schedule(tuple(widths), grid.digits)
        pieces, senders = (
            Slot.every(window, itemsize, tuple(widths.values())),
            grid.senders(exchange),
        )
        routed = [(slot, _scheduled(tuple(widths), senders, slot, grid)) for slot in pieces]
        whole = [(slot, spread) for slot in Slot.every(source_reach, itemsize)]
        for found in (routed, whole):
            for slot, schedule in found:
                yield Routed(
                    name="spread" if schedule is spread else "routed",
                    view=tuple(axes),
                    itemsize=itemsize,
                    digits=grid.digits,
                    schedule=schedule,
                    window=window,
                    slot=slot,
                    source_reach=source_reach,
                    target_reach=target_reach,
                    pads=source_reach != exchange.source.local_shape,
                    incoming=math.prod(tiles.max_peers_of_target for tiles in exchange.dims)
                    * exchange.rule.pieces,
                )

    @property
    def spreads(self) -> bool:
        """Whether whole source shards go."""
        return self.name == "spread"

    @property
    def held_shape(self) -> Shape:
        """The extents of what a slot holds, in its order of dimensions."""
        return tuple(self.slot.held[axis] for axis in self.slot.order)

    @property
    def is_padded(self) -> bool:
        """Whether a slot is larger than what it holds, so that parts can be of whole units."""
        return not self.slot.dense and self.slot.shape != self.held_shape

    @property
    def sized(self) -> tuple[int, ...]:
        """The dimensions of a slot of which moves say how much is sent."""
        first = (0,) if self.schedule.halves else ()
        return tuple(sorted({*first, *self.slot.sized}))

    @property
    def tables(self) -> dict[str, list[str]]:
        """The tables of the schedule, by name, as Python expressions: the digits of positions; the
        offsets, ascending; where what came over each is in the end; of each round the hops
        (stride, extent, by) and the number of moves of each; (from, to) of the moves of every
        round, where halves move where these begin, the sizes of what moves, and where not all
        devices send over all offsets the number of the offset; (stride, extent, by) of those who
        send to a device or get of it; and then where what goes over each offset is at first."""
        schedule = self.schedule
        return {
            "DIGITS": [repr(pair) for pair in self.digits],
            "OFFSETS": list(map(str, schedule.offsets)),
            "ARRIVES": list(map(str, schedule.arrives)),
            "ROUNDS": [
                str(tuple((*_numbers(sent.hop), len(sent.moves)) for sent in each.sends))
                for each in schedule.rounds
            ],
            "MOVES": [str(self._row(move)) for move in schedule.moves],
            "PARTNERS": [str(_numbers(hop)) for hop in schedule.partners],
            **({"STARTS": list(map(str, schedule.starts))} if schedule.is_shared else {}),
        }

    def _row(self, move: Push) -> tuple[int, ...]:
        begin, extent = self.slot.part(move.number, move.halves)
        size = (extent, *self.slot.size(move.number)[1:])
        first = (begin,) if self.schedule.halves else ()
        last = (move.number,) if self.schedule.is_shared else ()
        return move.here, move.there, *first, *(size[axis] for axis in self.sized), *last

    def hops(self) -> Iterator[tuple[int, Hop, int, Integers]]:
        """Yield every move: the number of its round, its hop, the elements that are sent, and the
        devices that send them."""
        for turn, hop, move, devices in self.schedule.made(self.digits):
            yield turn, hop, self.slot.sent(move.number, move.halves), devices

    @cached_property
    def sent(self) -> int:
        """Elements that all devices send in all rounds."""
        return sum(size * devices.size for _, _, size, devices in self.hops())

    @cached_property
    def received(self) -> int:
        """Elements that come to the busiest device in all rounds."""
        into = np.zeros(math.prod(extent for _, extent in self.digits), dtype=np.int64)
        for _, hop, size, devices in self.hops():
            into[hop.to(devices)] += size
        return int(into.max(initial=0))

    def functions(self, exchange: Exchange) -> tuple[IndexFunction, ...]:
        """Return the index functions that this form needs beside those of every module: none."""
        return ()

    def figures(self, sums: Sums) -> Figures:
        """Return what it moves: every hop reads and writes a slot, on every device. XLA is taken
        to read and write windows and slots once."""
        exchange, itemsize, schedule = sums.exchange, self.itemsize, self.schedule
        slot, devices = self.slot.elements, exchange.ranks.size
        source, target = exchange.source, exchange.target
        held, window = self._padded(self.slot.held), self._padded(self.window)
        shards = self._padded(source.local_shape) * source.mesh.size if self.pads else 0
        shards += 2 * self._padded(self.target_reach) * target.mesh.size
        filled = sum(map(len, schedule.senders)) or len(schedule.starts) * devices
        packed = filled * (held + slot) + schedule.places * slot * devices
        read = window if self.spreads else slot
        if self.spreads and self.slot.dense:
            read += slot + held  # rows of a shard are put in their places again for every tile
        unpacked = self.incoming * (read + 2 * window) * target.mesh.size
        moves = sum(each.size for *_, each in self.hops())
        return Figures(
            wire_bytes=itemsize * self.sent,
            wire_max=itemsize * self.received,
            exact_bytes=itemsize * sums.remote(width),
            hbm_bytes=itemsize * (2 * self.sent + packed + unpacked + shards),
            hbm_least=least_traffic(sums, itemsize),
            staging_bytes=itemsize * slot * schedule.places,
            chunks=2 * filled + moves + 2 * self.incoming * target.mesh.size,
        )

    def _padded(self, shape: Shape) -> int:
        return padded_elements(shape, default_view(shape, self.itemsize), self.itemsize)


def _scheduled(
    offsets: tuple[int, ...], senders: tuple[tuple[int, ...], ...], slot: Slot, grid: Grid
) -> RoutedSchedule:
    """Return the schedule of pieces in slots."""
    start = grid.torus.latency * grid.torus.bandwidth / slot.itemsize
    pieces = [
        Freight(
            offset,
            slot.sent(number),
            slot.is_cut(number),
            senders[number] if senders else (),
            start,
        )
        for number, offset in enumerate(offsets)
    ]
    return routed_schedule(pieces, grid.ways, ROUND_BYTES / slot.itemsize)


def _numbers(hop: Hop) -> tuple[int, int, int]:
    return hop.stride, hop.extent, hop.by
