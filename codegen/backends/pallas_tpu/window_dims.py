"""The dimensions of kernels of the windows form, and the proofs about their windows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shardwright.codegen.backends.pallas_tpu.memory import round_up
from shardwright.codegen.backends.pallas_tpu.pieces import Pieces, covered, cut
from shardwright.codegen.backends.pallas_tpu.proofs import apart, expect, inside
from shardwright.ir.algebra.index import Integers
from shardwright.ir.layout import DimLayout
from shardwright.ir.tiles import DimTiles


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


def prove_windows(dim: WindowDim, stage: int, pieces: Pieces, tiles: DimTiles, about: str) -> None:
    """Raise InternalError if a property of the windows along a dimension fails; see `proofs.py`.
    `stage`: the extent of the staging area; `about`: the form and the dimension."""
    whole = (dim.chunk % dim.unit, dim.window % dim.unit, dim.step % dim.unit, stage % dim.unit)
    expect(not any(whole), f"{about}: not all multiples of {dim.unit}")
    expect(dim.chunks * dim.chunk >= int(pieces.width.max()), f"{about}: too few chunks")
    expect(dim.blocks * dim.chunk >= tiles.target.size, f"{about}: too few blocks")
    into = pieces.low - pieces.target_low
    place = into // dim.unit * dim.unit + pieces.band * dim.step
    taken = covered(0 * place, pieces.width, dim.unit)
    inside(place, taken, stage, f"{about}, staging area")
    apart(pieces.target, place, taken, about)
    room = round_up(tiles.source.size, dim.unit)
    _check_cuts(dim, pieces, pieces.low, pieces.source_low, room, f"{about}, sender")
    _check_cuts(dim, pieces, pieces.target_low, pieces.source_low, room, f"{about}, own")
    _check_cuts(dim, pieces, pieces.target_low, pieces.low - place, stage, f"{about}, unpacking")
    _check_meetings(dim, tiles, about)


def _check_cuts(
    dim: WindowDim, pieces: Pieces, origin: Integers, start: Integers, room: int, about: str
) -> None:
    """Check that each part of a piece, cut into chunks from `origin`, fits in the window that
    fetches it, and that the fetch stays inside its buffer of extent `room`; `start`: where in the
    tensor the buffer starts."""
    number, low, high = cut(pieces.low, pieces.high, origin, dim.chunk)
    first = (low - start[number]) // dim.unit * dim.unit
    size = covered(low - start[number], high - start[number], dim.unit)
    inside(first, size, room, about)
    # Along an untiled dimension, a part is fetched to its final position in the block.
    at = (low - origin[number]) % dim.chunk
    inside(at if dim.unit == 1 else 0 * at, size, dim.window, f"{about}, window")
    if dim.unit > 1 and not dim.rolled:
        phase = (low - start[number]) % dim.unit
        expect(bool((phase == at).all()), f"{about}: a tile that must be shifted is not")


def _check_meetings(dim: WindowDim, tiles: DimTiles, about: str) -> None:
    """Check that no block of a target shard overlaps more source shards than the kernel visits."""
    low, high = (
        end[tiles.target.intervals[1] > tiles.target.intervals[0]] for end in tiles.target.intervals
    )
    _, start, end = cut(low, high, low, dim.chunk)
    met = tiles.source.owner(end - 1) - tiles.source.owner(start) + 1
    expect(
        int(np.max(met)) <= dim.meet,
        f"{about}: a block needs more source shards than the kernel visits",
    )
