"""The bands between the cuts of each tensor dimension, and the holders of shards.

Text pictures and SVGs draw at most two dimensions at once and a bounded number of bands, so a
picture of 65,536 devices costs no more than one of eight.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np

from shardwright.ir.exchange import Exchange
from shardwright.ir.layout import Layout
from shardwright.ir.tiles import DimTiles

# The maximum number of holders of a shard to name; text shortens longer lists.
NAMED_HOLDERS = 4


@dataclass(frozen=True)
class Band:
    """The range [low, high) of a dimension between two adjacent cuts, and the indices of the source
    and target shards that contain it."""

    low: int
    high: int
    source: int
    target: int


@dataclass(frozen=True)
class Bands:
    """The first bands of a tensor dimension, in order. `count`: the number of all bands."""

    axis: int
    extent: int
    bands: tuple[Band, ...]
    count: int

    @property
    def is_cut(self) -> bool:
        """Whether the source or the target splits the dimension."""
        return self.count > 1

    @property
    def is_whole(self) -> bool:
        """Whether these bands are all bands of the dimension."""
        return len(self.bands) == self.count


def bands_of(exchange: Exchange, limit: int) -> tuple[Bands, ...]:
    """Return the first `limit` bands of each tensor dimension."""
    visible = exchange.dims[exchange.source.hidden :]
    return tuple(_bands(axis, tiles, limit) for axis, tiles in enumerate(visible))


def _bands(axis: int, tiles: DimTiles, limit: int) -> Bands:
    pairs = tiles.pairs
    columns = (pairs.low, pairs.high, pairs.source, pairs.target)
    rows = zip(*(column[:limit].tolist() for column in columns), strict=True)
    bands = tuple(Band(*row) for row in rows)
    return Bands(axis, tiles.source.extent, bands, int(pairs.low.size))


def drawn_axes(dims: tuple[Bands, ...]) -> tuple[int | None, int | None]:
    """Return the dimensions drawn down and across: the first two that are cut; if only one is
    cut, that one and a neighbour; if none is cut, the last two."""
    cut = [dim.axis for dim in dims if dim.is_cut]
    if len(cut) == 1:
        cut = _with_neighbour(cut[0], len(dims))
    elif not cut:
        cut = list(range(len(dims)))[-2:]
    if len(cut) == 1:
        return None, cut[0]
    return (cut[0], cut[1]) if cut else (None, None)


def _with_neighbour(axis: int, rank: int) -> list[int]:
    """Return a dimension and the previous one, in order; for the first dimension, the dimension and
    the next one, if any."""
    return [other for other in (axis, axis + 1) if other < rank] if axis == 0 else [axis - 1, axis]


@dataclass(frozen=True)
class CutPicture:
    """A two-dimensional slice of the tensor: the bands of one dimension are drawn down, those of
    the other across. In every other dimension, the slice lies in the first band."""

    exchange: Exchange
    dims: tuple[Bands, ...]
    down: Bands | None
    across: Bands | None

    @staticmethod
    def of(exchange: Exchange, limit: int) -> CutPicture:
        """Return the slice along the two drawn dimensions, with at most `limit` bands of each."""
        dims = bands_of(exchange, limit)
        down, across = (None if axis is None else dims[axis] for axis in drawn_axes(dims))
        return CutPicture(exchange, dims, down, across)

    @property
    def rows(self) -> tuple[Band, ...]:
        """The bands drawn downwards; a single band if no dimension is drawn downwards."""
        return self.down.bands if self.down else (Band(0, 1, 0, 0),)

    @property
    def columns(self) -> tuple[Band, ...]:
        """The bands drawn across; a single band if no dimension is drawn across."""
        return self.across.bands if self.across else (Band(0, 1, 0, 0),)

    def shards(self, row: Band, column: Band) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the source and the target shard index of the tile at a row and a column."""
        chosen = [dim.bands[0] for dim in self.dims]
        for dim, band in ((self.down, row), (self.across, column)):
            if dim is not None:
                chosen[dim.axis] = band
        hidden = (0,) * self.exchange.source.hidden
        return (
            (*hidden, *(band.source for band in chosen)),
            (*hidden, *(band.target for band in chosen)),
        )

    def narrowed(self, columns: int) -> CutPicture:
        """Return the picture with at most this many bands across."""
        if self.across is None or columns >= len(self.columns):
            return self
        return replace(self, across=replace(self.across, bands=self.across.bands[:columns]))

    def notes(self) -> tuple[str, ...]:
        """Return sentences that state which parts of the picture are omitted."""
        drawn = {dim.axis for dim in (self.down, self.across) if dim is not None}
        slices = [
            f"dimension {dim.axis} at [{dim.bands[0].low}, {dim.bands[0].high})"
            for dim in self.dims
            if dim.axis not in drawn and dim.is_cut
        ]
        notes = [f"A slice: {', '.join(slices)}."] if slices else []
        notes += [
            f"The first {len(dim.bands)} of {dim.count} bands of dimension {dim.axis}."
            for dim in (self.down, self.across)
            if dim is not None and not dim.is_whole
        ]
        if self.exchange.source.hidden:
            notes.append("Of the unreduced axes, the devices of coordinate 0.")
        return tuple(notes)


def holders(layout: Layout, index: tuple[int, ...], limit: int = NAMED_HOLDERS) -> tuple[int, ...]:
    """Return the device ids of the first `limit` holders of a shard, by replica."""
    replicas = np.arange(min(layout.replicas, limit), dtype=np.int64)
    positions = layout.position(index, replicas) + 0 * replicas
    return tuple(layout.mesh.device_ids[position] for position in positions.tolist())


def holders_text(layout: Layout, index: tuple[int, ...]) -> str:
    """List the holders of a shard: `0,4` or `0-7` or `0,4,8,12,…`."""
    ids = holders(layout, index)
    if layout.replicas <= NAMED_HOLDERS:
        return _runs(ids)
    last = layout.position(index, layout.replicas - 1)
    if layout.replicas == layout.mesh.size and isinstance(layout.mesh.device_ids, range):
        return f"{ids[0]}-{layout.mesh.device_ids[int(last)]}"
    return f"{ids[0]},{ids[1]},…"


def _runs(ids: tuple[int, ...]) -> str:
    """Return ids separated by commas, with runs of three or more as `first-last`."""
    ordered = enumerate(sorted(ids))
    texts: list[str] = []
    for _, group in itertools.groupby(ordered, key=lambda pair: pair[1] - pair[0]):
        run = [device for _, device in group]
        if len(run) >= 3:
            texts.append(f"{run[0]}-{run[-1]}")
        else:
            texts += map(str, run)
    return ",".join(texts)
