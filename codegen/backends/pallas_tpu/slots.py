"""The slots form, for thin tiles: XLA packs each tile densely into a slot and unpacks it on the
receiver."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from shardwright.codegen.backends.pallas_tpu.facts import FormFacts, Kernels
from shardwright.codegen.backends.pallas_tpu.figures import Figures, least_traffic, width
from shardwright.codegen.backends.pallas_tpu.memory import (
    LANES,
    View,
    default_view,
    padded_elements,
)
from shardwright.codegen.backends.pallas_tpu.pieces import Pieces, Sums
from shardwright.codegen.text.index_functions import IndexFunction
from shardwright.ir.algebra.index import Integers
from shardwright.ir.exchange import Exchange

MAX_WINDOW = 1 << 15
"""The most elements of a tile. For larger tiles, XLA's relayout takes seconds to compile and
megabytes of code (measured: 0.4 MB and 0.9 s for 200x200, 1.1 MB and 2.8 s for 500x500)."""


@dataclass(frozen=True)
class Slots:
    """The slots form of an exchange. A slot contains the rows of a tile contiguously, in granules
    of 512 bytes along an untiled dimension, so it needs no padding to memory tiles.

    `window`: a shape in which every tile fits; `packed`: the number of elements in 4 bytes;
    `granules`: the number of granules of a slot; `outgoing`, `incoming`: the most slots of a device
    along each dimension; `source_reach`, `target_reach`: the extents of shards, padded so that they
    contain every window; `pads`: whether the source shard is padded.
    """

    facts: ClassVar[FormFacts] = FormFacts(
        name="slots",
        does="XLA packs thin tiles densely into slots, and unpacks them",
        kernels=Kernels(("kernel",), ("outgoing", "incoming", "slot")),
        buffers="packed",
    )
    view: View
    itemsize: int
    window: tuple[int, ...]
    packed: int
    granules: int
    outgoing: tuple[int, ...]
    incoming: tuple[int, ...]
    source_reach: tuple[int, ...]
    target_reach: tuple[int, ...]
    pads: bool

    @property
    def name(self) -> str:
        return self.facts.name

    @staticmethod
    def of(exchange: Exchange, itemsize: int) -> Slots:
        axes = range(len(exchange.dims))
        window = tuple(widest(exchange, axis) for axis in axes)
        source_reach, target_reach = reaches(exchange, window)
        pieces = [exchange.rule.pieces if _is_cut(exchange, axis) else 1 for axis in axes]
        packed = 4 // min(itemsize, 4)
        return Slots(
            view=tuple(axes),
            itemsize=itemsize,
            window=window,
            packed=packed,
            granules=-(-math.prod(window) // (packed * LANES)),
            outgoing=tuple(exchange.dims[a].max_peers_of_source * pieces[a] for a in axes),
            incoming=tuple(exchange.dims[a].max_peers_of_target * pieces[a] for a in axes),
            source_reach=source_reach,
            target_reach=target_reach,
            pads=source_reach != exchange.source.local_shape,
        )

    @property
    def is_small(self) -> bool:
        return math.prod(self.window) <= MAX_WINDOW

    def functions(self, exchange: Exchange) -> tuple[IndexFunction, ...]:
        """Return an empty tuple: this form needs only the common index functions."""
        return ()

    def traffic(self, sums: Sums) -> tuple[int, int, int]:
        """Return the HBM bytes, over all devices, for packing, for sending slots, and for
        unpacking."""
        slot, window = self.granules * self.packed * LANES, self._padded(self.window)
        source, target = sums.exchange.source, sums.exchange.target
        packed = math.prod(self.outgoing) * (window + 2 * slot) * source.mesh.size
        packed += self._padded(source.local_shape) * source.mesh.size if self.pads else 0
        unpacked = math.prod(self.incoming) * (slot + 2 * window) * target.mesh.size
        unpacked += 2 * self._padded(self.target_reach) * target.mesh.size
        sent = 2 * (sums.remote(self._sent) + sums.local(self._sent))
        return self.itemsize * packed, self.itemsize * sent, self.itemsize * unpacked

    def figures(self, sums: Sums) -> Figures:
        """Return the form's traffic, assuming that XLA reads and writes each window and slot once
        and uses its default layouts for shards and windows."""
        exchange, itemsize = sums.exchange, self.itemsize
        into = sums.received(self._sent)
        slot = self.granules * self.packed * LANES
        source, target = exchange.source, exchange.target
        outgoing, incoming = math.prod(self.outgoing), math.prod(self.incoming)
        return Figures(
            wire_bytes=itemsize * int(into.sum()),
            wire_max=itemsize * int(into.max()),
            exact_bytes=itemsize * sums.remote(width),
            hbm_bytes=sum(self.traffic(sums)),
            hbm_least=least_traffic(sums, itemsize),
            staging_bytes=itemsize * slot * (outgoing + incoming),
            chunks=2 * (outgoing * source.mesh.size + incoming * target.mesh.size),
        )

    def _sent(self, pieces: Pieces, axis: int) -> Integers:
        return self.taken(axis, pieces.width)

    def taken(self, axis: int, width: Integers) -> Integers:
        """Return each piece's factor in the number of elements that its tile puts on the wire. A
        tile's rows are sent with the window's width, so the factors of the first dimension count
        all elements, and the other factors are 1."""
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


def reaches(exchange: Exchange, window: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the extents of the source and of the target shard, padded so that they contain every
    window."""
    ends = [_reach(exchange, axis, extent) for axis, extent in enumerate(window)]
    shapes = exchange.source.local_shape, exchange.target.local_shape
    source, target = (
        tuple(map(max, far, shape))
        for far, shape in zip(zip(*ends, strict=True), shapes, strict=True)
    )
    return source, target


def _reach(exchange: Exchange, axis: int, window: int) -> tuple[int, int]:
    tiles = exchange.dims[axis]
    pairs = tiles.pairs
    from_source = pairs.low - tiles.source.intervals[0][pairs.source]
    from_target = pairs.low - tiles.target.intervals[0][pairs.target]
    # A tile's last piece starts at most this far into the tile.
    into = int(pairs.width.max()) if _is_cut(exchange, axis) else 0
    return int(from_source.max()) + into + window, int(from_target.max()) + into + window


def _is_cut(exchange: Exchange, axis: int) -> bool:
    return exchange.rule.pieces > 1 and axis == exchange.rule.cut
