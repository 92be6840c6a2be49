"""The slots form: tiles are thin, so XLA packs each densely into a slot, and unpacks it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from shardwright.codegen.backends.pallas_tpu.figures import Figures, least_traffic, width
from shardwright.codegen.backends.pallas_tpu.memory import (
    LANES,
    View,
    default_view,
    padded_elements,
)
from shardwright.codegen.backends.pallas_tpu.pieces import Pieces, Sums
from shardwright.codegen.emit.index_functions import IndexFunction
from shardwright.ir.algebra.index import Integers
from shardwright.ir.exchange import Exchange

MAX_WINDOW = 1 << 15
"""Elements of a tile, at most: XLA's relayout of larger ones takes seconds to compile and megabytes
of code (measured: 0.4 MB and 0.9 s for 200x200, 1.1 MB and 2.8 s for 500x500)."""


@dataclass(frozen=True)
class Slots:
    """A tile fits `window`; a slot has its rows one after another, in `granules` of 512 bytes.

    Granules stand along a dimension that is not tiled, so that a slot takes no more than it must.

    `outgoing`, `incoming`: slots of a device; `pack_padding`: what windows need beyond the source
    shard; `unpack_shape`: what they reach of the target shard.
    """

    view: View
    itemsize: int
    window: tuple[int, ...]
    packed: int
    granules: int
    outgoing: int
    incoming: int
    pack_padding: str
    unpack_shape: tuple[int, ...]
    name: str = "slots"
    template: str = "pallas_tpu/slots"
    leaves_padding: bool = True

    @staticmethod
    def of(exchange: Exchange, itemsize: int) -> Slots:
        """Return the form of an exchange."""
        axes = range(len(exchange.dims))
        window = tuple(widest(exchange, axis) for axis in axes)
        pieces = exchange.rule.pieces
        ends = [reach(exchange, axis, window[axis]) for axis in axes]
        over = [
            max(end - dim.size, 0) for (end, _), dim in zip(ends, exchange.source.dims, strict=True)
        ]
        packed = 4 // min(itemsize, 4)
        return Slots(
            view=tuple(axes),
            itemsize=itemsize,
            window=window,
            packed=packed,
            granules=-(-math.prod(window) // (packed * LANES)),
            outgoing=math.prod(tiles.max_peers_of_source for tiles in exchange.dims) * pieces,
            incoming=math.prod(tiles.max_peers_of_target for tiles in exchange.dims) * pieces,
            pack_padding=f"[{', '.join(f'(0, {more})' for more in over)}]" if any(over) else "",
            unpack_shape=tuple(
                max(end, dim.size) for (_, end), dim in zip(ends, exchange.target.dims, strict=True)
            ),
        )

    @property
    def is_small(self) -> bool:
        """Whether XLA can be asked to pack such tiles."""
        return math.prod(self.window) <= MAX_WINDOW

    def functions(self, exchange: Exchange) -> tuple[IndexFunction, ...]:
        """Return the index functions that this form needs beside those of every module: none."""
        return ()

    def traffic(self, sums: Sums) -> tuple[int, int, int]:
        """Return bytes of HBM over all devices: to pack, while slots travel, to unpack."""
        slot, window = self.granules * self.packed * LANES, self._padded(self.window)
        source, target = sums.exchange.source, sums.exchange.target
        packed = self.outgoing * (window + 2 * slot) * source.mesh.size
        packed += self._padded(source.local_shape) * source.mesh.size if self.pack_padding else 0
        unpacked = self.incoming * (slot + 2 * window) * target.mesh.size
        unpacked += 2 * self._padded(self.unpack_shape) * target.mesh.size
        sent = 2 * (sums.remote(self._sent) + sums.local(self._sent))
        return self.itemsize * packed, self.itemsize * sent, self.itemsize * unpacked

    def figures(self, sums: Sums) -> Figures:
        """Return what it moves; XLA is taken to read and write each window and slot once, and to
        keep shards and windows as it does by default."""
        exchange, itemsize = sums.exchange, self.itemsize
        into = sums.received(self._sent)
        slot = self.granules * self.packed * LANES
        source, target = exchange.source, exchange.target
        return Figures(
            wire_bytes=itemsize * int(into.sum()),
            wire_max=itemsize * int(into.max()),
            exact_bytes=itemsize * sums.remote(width),
            hbm_bytes=sum(self.traffic(sums)),
            hbm_least=least_traffic(sums, itemsize),
            staging_bytes=itemsize * slot * (self.outgoing + self.incoming),
            chunks=2 * (self.outgoing * source.mesh.size + self.incoming * target.mesh.size),
        )

    def _sent(self, pieces: Pieces, axis: int) -> Integers:
        return self.taken(axis, pieces.width)

    def taken(self, axis: int, width: Integers) -> Integers:
        """Return the elements sent of a tile along a dimension: its own extent along the first,
        the window's along the others."""
        if axis:
            return 0 * width + 1
        inner = math.prod(self.window[1:])
        unit = self.packed * LANES
        elements: Integers = -(-(width * inner) // unit) * unit
        return elements

    def _padded(self, shape: tuple[int, ...]) -> int:
        return padded_elements(shape, default_view(shape, self.itemsize), self.itemsize)


def widest(exchange: Exchange, axis: int) -> int:
    """Return the extent of the widest piece along a dimension."""
    whole = exchange.dims[axis].max_width
    if not _is_cut(exchange, axis):
        return whole
    _, end = exchange.piece(whole, 0)
    return int(end)


def reach(exchange: Exchange, axis: int, window: int) -> tuple[int, int]:
    """Return how far windows reach from the start of the source and of the target shard."""
    tiles = exchange.dims[axis]
    pairs = tiles.pairs
    from_source = pairs.low - tiles.source.intervals[0][pairs.source]
    from_target = pairs.low - tiles.target.intervals[0][pairs.target]
    # The last piece of a tile starts at most this far into it.
    into = int(pairs.width.max()) if _is_cut(exchange, axis) else 0
    return int(from_source.max()) + into + window, int(from_target.max()) + into + window


def _is_cut(exchange: Exchange, axis: int) -> bool:
    return exchange.rule.pieces > 1 and axis == exchange.rule.cut
