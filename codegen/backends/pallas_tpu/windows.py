"""The windows form: chunks of tiles are shifted in VMEM and placed, aligned, in a staging area,
from which every block of the target shard is assembled.

A tile's place in the staging area is its place in the target shard, rounded down to whole units,
plus one unit for every earlier tile. So tiles never overlap: one that starts u into the shard and
is w wide ends at floor(u) + ceil(w) <= floor(u + w) + 1, in units.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

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
"""Most elements of a window: two of them, six chunks and the temporaries of shifts take less than 6
MiB of VMEM, of the 16 MiB that a kernel has by default on every generation. Shifts are unrolled
over a window, so larger windows compile more slowly (three times the elements take 1.3 times as
long); they save 0.6% of the HBM traffic."""
SLOTS = 6
"""Most chunks in flight: one for each link of a chip, and no chip has more than six."""
TEMPORARIES = 5
"""Windows of 32-bit words that the compiler needs at a time to shift one."""
FEWEST_ROWS = 5
"""Arrays with fewer rows have smaller tiles than windows; they get 8 rows."""


@dataclass(frozen=True)
class WindowDim:
    """One dimension of a kernel that moves windows.

    `unit`: the memory tiling, 1 if the dimension is not tiled; `chunk`: the extent of a chunk or
    block; `window`: the extent that is read to shift one; `chunks`: their number in the widest
    tile; `stage`: the extent of the staging area; `step`: the offset added there for each earlier
    tile; `blocks`: their number in a target shard; `meet`: the most source shards that a block
    meets; `rolled`: whether anything is shifted along the dimension; `pad`: the padding of a source
    shard to whole units.
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
        """Return a dimension cut into chunks; a window is wider by `more` if tiles are shifted: if
        one does not start at whole units of its source, or at a block of its target."""
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
        """Return the elements that a sender reads of every piece: the whole units that its chunks
        reach."""
        number, low, high = cut(self.pieces.low, self.pieces.high, self.pieces.low, self.chunk)
        start = self.pieces.source_low[number]
        return self._summed(number, covered(low - start, high - start, self.unit))

    def staged(self) -> Integers:
        """Return the elements of every piece on the wire and in the staging area."""
        return self.taken(self.pieces.width)

    def taken(self, width: Integers) -> Integers:
        """Return the whole units of pieces."""
        return covered(0 * width, width, self.unit)

    def unpacked(self, from_stage: bool) -> Integers:
        """Return the elements that blocks read of every piece, from the staging area or the
        source."""
        pieces = self.pieces
        number, low, high = cut(pieces.low, pieces.high, pieces.target_low, self.chunk)
        start = (pieces.low if from_stage else pieces.source_low)[number]
        return self._summed(number, covered(low - start, high - start, self.unit))

    def cuts(self) -> Integers:
        """Return the number of chunks of every piece."""
        chunks: Integers = -(-self.pieces.width // self.chunk)
        return chunks

    def _summed(self, number: Integers, values: Integers) -> Integers:
        return np.bincount(number, values, self.pieces.low.size).astype(np.int64)


def _ends(pieces: Pieces, unit: int, step: int) -> Integers:
    """Return the ends of pieces in the staging area."""
    into = (pieces.low - pieces.target_low) // unit * unit
    ends: Integers = into + pieces.band * step + covered(0 * pieces.low, pieces.width, unit)
    return ends


def _meet(source: DimLayout, target: DimLayout, chunk: int) -> int:
    """Return the most source shards that a block of a target shard meets."""
    if chunk == 1 or source.parts == 1:
        return 1
    full = target.intervals[1] > target.intervals[0]
    low, high = (end[full] for end in target.intervals)
    _, start, end = cut(low, high, low, chunk)
    first, last = source.owners(start, end)
    return int(np.max(last - first)) + 1


@dataclass(frozen=True)
class Windows:
    """The form; `dims` in the order of the view."""

    view: View
    itemsize: int
    dims: tuple[WindowDim, ...]
    few_rows: int
    name: str = "windows"

    @staticmethod
    def of(sums: Sums, itemsize: int, view: View) -> Windows:
        """Return the form of an exchange."""
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
        """Return the further index functions of this form."""
        return (source_at(exchange),)

    @property
    def unit(self) -> tuple[int, ...]:
        """The tiling of memory."""
        return tuple(dim.unit for dim in self.dims)

    @property
    def chunk(self) -> tuple[int, ...]:
        """Extents of a chunk."""
        return tuple(dim.chunk for dim in self.dims)

    @property
    def tile(self) -> tuple[int, ...]:
        """Extents of the widest tile."""
        return tuple(int(dim.pieces.width.max()) for dim in self.dims)

    @property
    def window(self) -> tuple[int, ...]:
        """Extents of a window."""
        return tuple(dim.window for dim in self.dims)

    @property
    def chunks(self) -> tuple[int, ...]:
        """Chunks of the widest tile."""
        return tuple(dim.chunks for dim in self.dims)

    @property
    def stage(self) -> tuple[int, ...]:
        """Extents of the staging area. Rows of bytes are not a multiple of 32 unless units are,
        since memory would then be tiled by 32."""
        extents = [dim.stage for dim in self.dims]
        if len(extents) > 1 and tile_rows(extents[-2], self.itemsize) != self.unit[-2]:
            extents[-2] += self.unit[-2]
        return tuple(extents)

    @property
    def step(self) -> tuple[int, ...]:
        """The offset of a tile in the staging area for each earlier tile."""
        return tuple(dim.step for dim in self.dims)

    @property
    def blocks(self) -> tuple[int, ...]:
        """Blocks of the target shard."""
        return tuple(dim.blocks for dim in self.dims)

    @property
    def meet(self) -> tuple[int, ...]:
        """Source shards that a block meets, in the tensor's order of dimensions."""
        return tuple(self.dims[self.view.index(axis)].meet for axis in range(len(self.view)))

    @property
    def rolled(self) -> tuple[int, ...]:
        """Of rows and lanes, the dimensions along which anything is shifted."""
        axes = range(max(len(self.dims) - 2, 0), len(self.dims))
        return tuple(axis for axis in axes if self.dims[axis].rolled)

    @property
    def vmem_bytes(self) -> int:
        """A kernel's VMEM: windows, chunks or blocks, and words being shifted."""
        window, chunk = math.prod(self.window), math.prod(self.chunk)
        # 64-bit elements are moved in two successive halves.
        return (2 * window + SLOTS * chunk) * min(self.itemsize, 4) + 4 * TEMPORARIES * window

    def taken(self, axis: int, width: Integers) -> Integers:
        """Return the extent of pieces on the wire along a dimension."""
        return self.dims[self.view.index(axis)].taken(width)

    def traffic(self, sums: Sums) -> tuple[int, int]:
        """Return HBM bytes over all devices: while chunks travel, and afterwards."""
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
        """Return the form's traffic."""
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
        """Return the bytes of copies that add rows to short arrays, over all devices."""
        if not self.few_rows:
            return 0
        layout, rows = sums.exchange.source, self.view[-2]
        shape = layout.local_shape
        more = tuple(s + self.few_rows * (axis == rows) for axis, s in enumerate(shape))
        copied = sum(padded_elements(s, self.view, self.itemsize) for s in (shape, more))
        return self.itemsize * copied * layout.mesh.size
