"""The windows form: senders shift chunks of tiles in VMEM and write them, aligned, to a staging
area on the receiver, which assembles every block of its target shard from there.

A tile's place in the staging area is its place in the target shard, rounded down to whole units,
plus one unit for every earlier tile. So tiles never overlap: in units, a tile that starts u into
the shard and is w wide ends at floor(u) + ceil(w) <= floor(u + w) + 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shardwright.codegen.backends.pallas_tpu.facts import FormFacts, Kernels
from shardwright.codegen.backends.pallas_tpu.figures import Figures, least_traffic, width
from shardwright.codegen.backends.pallas_tpu.memory import (
    FLAT_UNIT,
    LANES,
    View,
    padded_elements,
    round_up,
    tile_rows,
)
from shardwright.codegen.backends.pallas_tpu.pieces import Pieces, Sums, covered, cut
from shardwright.codegen.text.index_functions import IndexFunction, source_at
from shardwright.ir.algebra.index import Integers
from shardwright.ir.exchange import Exchange
from shardwright.ir.layout import DimLayout
from shardwright.ir.tiles import DimTiles

MAX_LANES = 1024
MAX_WINDOW = 96 * 1152
"""The most elements of a window. Two windows, six chunks and the temporaries of shifts then take
less than 6 MiB of VMEM, out of the 16 MiB that a kernel has by default on every generation. Shifts
are unrolled over a window, so larger windows compile more slowly (three times the elements take 1.3
times as long) and save only 0.6% of the HBM traffic."""
SLOTS = 6
"""The most chunks in flight: one for each link of a chip, which has at most six."""
TEMPORARIES = 5
"""The number of temporary windows of 32-bit words that the compiler needs to shift a window."""
FEWEST_ROWS = 5
"""The fewest rows of a source shard that is not padded. Shorter arrays would have smaller memory
tiles than windows, so they are padded to 8 rows."""


@dataclass(frozen=True)
class WindowDim:
    """One dimension of a kernel of the windows form.

    `unit`: the extent of a memory tile, 1 if the dimension is not tiled; `chunk`: the extent of a
    chunk or block; `window`: the extent that is read to shift a chunk; `chunks`: the number of
    chunks of the widest tile; `stage`: the extent of the staging area; `step`: the offset that each
    earlier tile adds to a tile's place there; `blocks`: the number of blocks of a target shard;
    `meet`: the most source shards that a block overlaps; `rolled`: whether any chunk is shifted
    along the dimension; `pad`: the padding of a source shard to whole units.
    """

    pieces: Pieces
    unit: int
    chunk: int
    window: int
    chunks: int
    stage: int
    step: int
    blocks: int
    meet: int
    rolled: bool
    pad: int

    @staticmethod
    def of(
        tiles: DimTiles, pieces: Pieces, unit: int = 1, chunk: int = 1, more: int = 0
    ) -> WindowDim:
        """Return a dimension cut into chunks. If any tile does not start at a whole unit of its
        source shard, or at a block of its target shard, chunks are shifted along the dimension, and
        windows are wider than chunks by `more`."""
        widest = int(pieces.width.max())
        into_source = (pieces.low - pieces.source_low) % unit
        into_target = (pieces.low - pieces.target_low) % unit
        step = unit if into_target.any() and unit > 1 else 0
        within_block = (pieces.low - pieces.target_low) % chunk
        rolled = unit > 1 and bool(into_source.any() or within_block.any())
        return WindowDim(
            pieces=pieces,
            unit=unit,
            chunk=chunk,
            window=chunk + more if rolled else chunk,
            chunks=-(-widest // chunk),
            stage=max(int(_ends(pieces, unit, step).max()), round_up(tiles.target.size, unit)),
            step=step,
            blocks=-(-tiles.target.size // chunk),
            meet=_meet(tiles.source, tiles.target, chunk),
            rolled=rolled,
            pad=round_up(tiles.source.size, unit) - tiles.source.size,
        )

    def sent(self) -> Integers:
        """Return the number of elements that the sender of each piece reads along the dimension:
        the whole units that cover its chunks."""
        number, low, high = cut(self.pieces.low, self.pieces.high, self.pieces.low, self.chunk)
        start = self.pieces.source_low[number]
        return self._summed(number, covered(low - start, high - start, self.unit))

    def staged(self) -> Integers:
        """Return each piece's extent on the wire and in the staging area."""
        return self.taken(self.pieces.width)

    def taken(self, width: Integers) -> Integers:
        """Return the widths of pieces, rounded up to whole units."""
        return covered(0 * width, width, self.unit)

    def unpacked(self, from_stage: bool) -> Integers:
        """Return the number of elements of each piece that blocks read along the dimension, from
        the staging area or from the source shard."""
        pieces = self.pieces
        number, low, high = cut(pieces.low, pieces.high, pieces.target_low, self.chunk)
        start = (pieces.low if from_stage else pieces.source_low)[number]
        return self._summed(number, covered(low - start, high - start, self.unit))

    def cuts(self) -> Integers:
        chunks: Integers = -(-self.pieces.width // self.chunk)
        return chunks

    def _summed(self, number: Integers, values: Integers) -> Integers:
        return np.bincount(number, values, self.pieces.low.size).astype(np.int64)


def _ends(pieces: Pieces, unit: int, step: int) -> Integers:
    into = (pieces.low - pieces.target_low) // unit * unit
    ends: Integers = into + pieces.band * step + covered(0 * pieces.low, pieces.width, unit)
    return ends


def _meet(source: DimLayout, target: DimLayout, chunk: int) -> int:
    if chunk == 1 or source.parts == 1:
        return 1
    full = target.intervals[1] > target.intervals[0]
    low, high = (end[full] for end in target.intervals)
    _, start, end = cut(low, high, low, chunk)
    first, last = source.owners(start, end)
    return int(np.max(last - first)) + 1


@dataclass(frozen=True)
class Windows:
    """The windows form of an exchange. `dims`: its dimensions, in view order; `few_rows`: the
    number of rows to which a source shard with fewer rows is padded."""

    facts: ClassVar[FormFacts] = FormFacts(
        name="windows",
        does="chunks of tiles are shifted in VMEM into a staging area, and assembled from there",
        kernels=Kernels(("unpack_kernel",), ("tiling", "slots"), ("push_kernel",)),
        buffers="staged",
    )
    view: View
    itemsize: int
    dims: tuple[WindowDim, ...]
    few_rows: int

    @property
    def name(self) -> str:
        return self.facts.name

    @staticmethod
    def of(sums: Sums, itemsize: int, view: View) -> Windows:
        """Return the form for an exchange, in a dimension order."""
        tiles = tuple(sums.exchange.dims[axis] for axis in view)
        pieces = tuple(sums.pieces[axis] for axis in view)
        widest = tuple(int(p.width.max()) for p in pieces)
        packed = 4 // min(itemsize, 4)
        if len(view) == 1:
            granule = FLAT_UNIT * packed
            most = MAX_WINDOW // granule * granule - granule
            chunk = min(most, round_up(widest[0], granule))
            flat = WindowDim.of(tiles[0], pieces[0], FLAT_UNIT, chunk, granule)
            return Windows(view, itemsize, (flat,), 0)
        source_rows = tiles[-2].source.size
        if source_rows < FEWEST_ROWS:
            source_rows = 8
        unit = tile_rows(source_rows, itemsize)
        granule = max(8 * packed, unit)
        lanes = min(MAX_LANES, round_up(widest[-1], LANES))
        most = MAX_WINDOW // (lanes + LANES) // granule * granule - granule
        rows = min(round_up(widest[-2], granule), most)
        room, leading = MAX_WINDOW // ((rows + granule) * (lanes + LANES)), []
        for t, p, w in zip(tiles[-3::-1], pieces[-3::-1], widest[-3::-1], strict=True):
            leading.append(WindowDim.of(t, p, chunk=max(min(w, room), 1)))
            room //= leading[-1].chunk
        dims = (
            *reversed(leading),
            WindowDim.of(tiles[-2], pieces[-2], unit, rows, granule),
            WindowDim.of(tiles[-1], pieces[-1], LANES, lanes, LANES),
        )
        return Windows(view, itemsize, dims, source_rows - tiles[-2].source.size)

    def functions(self, exchange: Exchange) -> tuple[IndexFunction, ...]:
        """Return the index functions that this form needs in addition to the common ones."""
        return (source_at(exchange),)

    @property
    def unit(self) -> tuple[int, ...]:
        """The extents of a memory tile, 1 along untiled dimensions."""
        return tuple(dim.unit for dim in self.dims)

    @property
    def chunk(self) -> tuple[int, ...]:
        return tuple(dim.chunk for dim in self.dims)

    @property
    def tile(self) -> tuple[int, ...]:
        """The largest extents of tiles."""
        return tuple(int(dim.pieces.width.max()) for dim in self.dims)

    @property
    def window(self) -> tuple[int, ...]:
        return tuple(dim.window for dim in self.dims)

    @property
    def chunks(self) -> tuple[int, ...]:
        return tuple(dim.chunks for dim in self.dims)

    @property
    def stage(self) -> tuple[int, ...]:
        """The extents of the staging area. For 1-byte elements, a number of rows that is a multiple
        of 32 would be tiled differently from what units assume; the area then has one more unit of
        rows."""
        extents = [dim.stage for dim in self.dims]
        if len(extents) > 1 and tile_rows(extents[-2], self.itemsize) != self.unit[-2]:
            extents[-2] += self.unit[-2]
        return tuple(extents)

    @property
    def blocks(self) -> tuple[int, ...]:
        return tuple(dim.blocks for dim in self.dims)

    @property
    def meet(self) -> tuple[int, ...]:
        """The most source shards that a block overlaps, by tensor dimension."""
        return tuple(self.dims[self.view.index(axis)].meet for axis in range(len(self.view)))

    @property
    def rolled(self) -> tuple[int, ...]:
        """The dimensions, among rows and lanes, along which chunks are shifted."""
        axes = range(max(len(self.dims) - 2, 0), len(self.dims))
        return tuple(axis for axis in axes if self.dims[axis].rolled)

    @property
    def vmem_bytes(self) -> int:
        """The bytes of VMEM that a kernel needs: two windows, the chunks or blocks in flight, and
        the temporaries of a shift."""
        window, chunk = math.prod(self.window), math.prod(self.chunk)
        # 64-bit elements move as two successive halves.
        return (2 * window + SLOTS * chunk) * min(self.itemsize, 4) + 4 * TEMPORARIES * window

    def taken(self, axis: int, width: Integers) -> Integers:
        """Return the extents of pieces on the wire along a dimension, given their widths."""
        return self.dims[self.view.index(axis)].taken(width)

    def traffic(self, sums: Sums) -> tuple[int, int]:
        """Return the HBM bytes, over all devices, for sending chunks and for then assembling
        blocks."""
        dims = dict(zip(self.view, self.dims, strict=True))
        sent = sums.remote(lambda _, axis: dims[axis].sent())
        target = sums.exchange.target
        unpacked = (
            sums.remote(lambda _, axis: dims[axis].unpacked(from_stage=True))
            + sums.local(lambda _, axis: dims[axis].unpacked(from_stage=False))
            + math.prod(target.local_shape) * target.mesh.size
        )
        first = sent + sums.remote(lambda _, axis: dims[axis].staged())
        return self.itemsize * first + self._padded_rows(sums), self.itemsize * unpacked

    def figures(self, sums: Sums) -> Figures:
        dims = dict(zip(self.view, self.dims, strict=True))
        exchange, itemsize = sums.exchange, min(self.itemsize, 4)
        words = self.itemsize // itemsize
        into = sums.received(lambda _, axis: dims[axis].staged())
        wire = int(into.sum())
        chunks = sums.remote(lambda _, axis: dims[axis].cuts())
        blocks = math.prod(self.blocks) * exchange.target.mesh.size
        return Figures(
            wire_bytes=self.itemsize * wire,
            wire_max=self.itemsize * int(into.max()),
            exact_bytes=self.itemsize * sums.remote(width),
            hbm_bytes=sum(self.traffic(sums)),
            hbm_least=least_traffic(sums, self.itemsize),
            staging_bytes=self.itemsize * math.prod(self.stage) if wire else 0,
            vmem_bytes=self.vmem_bytes,
            chunks=words * (chunks + blocks),
        )

    def _padded_rows(self, sums: Sums) -> int:
        """Return the HBM bytes, over all devices, of the copies that pad source shards with few
        rows."""
        if not self.few_rows:
            return 0
        layout, rows = sums.exchange.source, self.view[-2]
        shape = layout.local_shape
        more = tuple(s + self.few_rows * (axis == rows) for axis, s in enumerate(shape))
        copied = sum(padded_elements(s, self.view, self.itemsize) for s in (shape, more))
        return self.itemsize * copied * layout.mesh.size
