"""The routed and spread forms: a v5e does not send directly to every receiver, so that tiles go
from device to device (`tpu_routes`), in slots of one size that XLA packs and unpacks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from shardwright.codegen.backends.tpu_grid import Grid
from shardwright.codegen.backends.tpu_pairs import Sums
from shardwright.codegen.backends.tpu_routes import Digits, Schedule, offsets_of
from shardwright.codegen.backends.tpu_routes import routed as routed_schedule
from shardwright.codegen.backends.tpu_routes import spread as spread_schedule
from shardwright.codegen.backends.tpu_slots import MAX_WINDOW, reach, widest
from shardwright.codegen.backends.tpu_traffic import Figures, least_traffic, width
from shardwright.codegen.backends.tpu_view import LANES, View, default_view, padded_elements
from shardwright.codegen.forms import IndexFunction
from shardwright.codegen.module import constant_lines
from shardwright.ir.exchange import Exchange

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Routed:
    """`window`: what a tile fits, by dimension of the tensor; `held`: what a slot holds, a window
    or (spread) the source shard with what windows reach beyond it; `order`: the order of its
    dimensions in a slot; `granules`: of 512 bytes in a slot where `held` lies in it row after row,
    0 where it lies there as it is. `pack_padding`: what windows need beyond the source shard.
    `unpack_shape`: what they reach of the target shard; `incoming`: tiles of a target shard.
    """

    name: Literal["routed", "spread"]
    view: View
    itemsize: int
    order: View
    digits: Digits
    schedule: Schedule
    window: Shape
    held: Shape
    granules: int
    pack_padding: str
    unpack_shape: Shape
    incoming: int
    template: str = "tpu_routed"
    leaves_padding: bool = True

    @staticmethod
    def every(exchange: Exchange, itemsize: int, grid: Grid) -> Iterator[Routed]:
        """The forms of an exchange."""
        digits = grid.digits
        offsets = sorted({*offsets_of(*grid.pairs(exchange), digits).tolist()})
        axes = range(len(exchange.dims))
        window = tuple(widest(exchange, axis) for axis in axes)
        ends = [reach(exchange, axis, window[axis]) for axis in axes]
        source, target = exchange.source.local_shape, exchange.target.local_shape
        reached = tuple(max(end, size) for (end, _), size in zip(ends, source, strict=True))
        more = [end - size for end, size in zip(reached, source, strict=True)]
        padding = f"[{', '.join(f'(0, {size})' for size in more)}]" if any(more) else ""
        unpack_shape = tuple(max(end, size) for (_, end), size in zip(ends, target, strict=True))
        incoming = math.prod(tiles.max_peers_of_target for tiles in exchange.dims)
        for name, schedule, held in (
            ("routed", routed_schedule(offsets, digits), window),
            ("spread", spread_schedule(offsets, digits), reached),
        ):
            for order, granules in _slots(held, itemsize):
                yield Routed(
                    name=name,  # type: ignore[arg-type]
                    view=tuple(axes),
                    itemsize=itemsize,
                    order=order,
                    digits=digits,
                    schedule=schedule,
                    window=window,
                    held=held,
                    granules=granules,
                    pack_padding=padding,
                    unpack_shape=unpack_shape,
                    incoming=incoming * exchange.rule.pieces,
                )

    @property
    def spreads(self) -> bool:
        """Whether whole source shards go."""
        return self.name == "spread"

    @property
    def dense(self) -> bool:
        """Whether slots are rows one after another."""
        return self.granules > 0

    @property
    def packed(self) -> int:
        """Elements of a 32-bit word."""
        return _packed(self.itemsize)

    @property
    def slot(self) -> Shape:
        """The shape of a slot."""
        if self.dense:
            return self.granules, self.packed, LANES
        return tuple(self.held[axis] for axis in self.order)

    @property
    def turned(self) -> bool:
        """Whether the dimensions in a slot are in another order than the tensor's."""
        return not self.dense and self.order != self.view

    @property
    def inverse_order(self) -> View:
        """The place of each dimension of the tensor in a slot."""
        return tuple(self.order.index(axis) for axis in self.view)

    @property
    def slot_elements(self) -> int:
        """Elements of a slot as memory and links carry it."""
        if self.dense:
            return self.granules * self.packed * LANES
        return padded_elements(self.held, self.order, self.itemsize)

    @property
    def offset_lines(self) -> tuple[str, ...]:
        """The offsets, by slot."""
        return tuple(constant_lines("OFFSETS", list(map(str, self.schedule.offsets))))

    @property
    def arrival_lines(self) -> tuple[str, ...]:
        """Where what came over each offset is in the end."""
        return tuple(constant_lines("ARRIVES", list(map(str, self.schedule.arrives))))

    @property
    def hops(self) -> str:
        """(stride, extent, by) and the number of moves of each round."""
        rounds = [
            f"({r.hop.stride}, {r.hop.extent}, {r.hop.by}, {len(r.moves)})"
            for r in self.schedule.rounds
        ]
        return "\n".join(constant_lines("ROUNDS", rounds))

    @property
    def move_lines(self) -> tuple[str, ...]:
        """(from, to) of the moves of every round."""
        moves = [str(move) for each in self.schedule.rounds for move in each.moves]
        return tuple(constant_lines("MOVES", moves))

    @property
    def partners(self) -> str:
        """(stride, extent, by) of those who send to a device or get of it."""
        hops = [f"({hop.stride}, {hop.extent}, {hop.by})" for hop in self.schedule.partners]
        return "\n".join(constant_lines("PARTNERS", hops))

    def functions(self, exchange: Exchange) -> tuple[IndexFunction, ...]:
        """The index functions that this form needs beside those of every module: none."""
        return ()

    def figures(self, sums: Sums) -> Figures:
        """What it moves: every hop reads and writes a slot, on every device. XLA is taken to read
        and write windows and slots once."""
        exchange, itemsize, schedule = sums.exchange, self.itemsize, self.schedule
        slot, devices = self.slot_elements, exchange.ranks.size
        source, target = exchange.source, exchange.target
        held, window = self._padded(self.held), self._padded(self.window)
        shards = self._padded(source.local_shape) * source.mesh.size if self.pack_padding else 0
        shards += 2 * self._padded(self.unpack_shape) * target.mesh.size
        packed = (schedule.starts * (held + slot) + schedule.places * slot) * devices
        read = window if self.spreads else slot
        unpacked = self.incoming * (read + 2 * window) * target.mesh.size
        moved = 2 * schedule.sent * slot * devices
        return Figures(
            wire_bytes=itemsize * schedule.sent * slot * devices,
            wire_max=itemsize * schedule.sent * slot,
            exact_bytes=itemsize * sums.remote(width),
            hbm_bytes=itemsize * (moved + packed + unpacked + shards),
            hbm_least=least_traffic(sums, itemsize),
            staging_bytes=itemsize * slot * schedule.places,
            chunks=(2 * schedule.starts + schedule.sent) * devices
            + 2 * self.incoming * target.mesh.size,
        )

    def _padded(self, shape: Shape) -> int:
        return padded_elements(shape, default_view(shape, self.itemsize), self.itemsize)


def _packed(itemsize: int) -> int:
    return 4 // min(itemsize, 4)


def _slots(held: Shape, itemsize: int) -> Iterator[tuple[View, int]]:
    """How a slot may hold elements: the order of dimensions and the granules, 0 for none.

    XLA can be asked to put the rows of little one after another, and those of a vector.
    """
    own = tuple(range(len(held)))
    if len(held) == 1 or math.prod(held) <= MAX_WINDOW:
        yield own, -(-math.prod(held) // (_packed(itemsize) * LANES))
    if len(held) > 1:
        yield default_view(held, itemsize), 0
