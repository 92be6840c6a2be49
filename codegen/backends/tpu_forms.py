"""The forms of the TPU kernel: tiles moved in place where they are aligned, else through slots.

TPU memory is tiled over the last two dimensions, and a DMA window must start and end at multiples
of the tiling. Where every tile does, it goes straight from shard to shard. Elsewhere a tile travels
at the start of a slot, padded to the tiling.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from shardwright.ir.errors import InternalError
from shardwright.ir.exchange import Exchange

LANES = 128


def tiling_rows(itemsize: int) -> int:
    """Rows of the tiling of HBM: 8, and 32 for bytes where the extent is a multiple of 32."""
    return 32 if itemsize == 1 else 8


def divisors(exchange: Exchange) -> tuple[int, ...]:
    """Per dimension an integer that divides start and width of every piece within its shards.

    Raises InternalError if a tile disagrees: neither interpreter nor compiler would see it.
    """
    found = []
    for axis, tiles in enumerate(exchange.dims):
        divisor = math.gcd(tiles.grain, tiles.source.extent)
        if exchange.rule.pieces > 1 and axis == exchange.rule.cut:
            divisor = math.gcd(divisor, exchange.rule.unit)
        for ends in (tiles.pairs.low, tiles.pairs.high):
            if (ends % divisor).any():
                raise InternalError(f"dimension {axis}: a tile is not a multiple of {divisor}")
        found.append(divisor)
    return tuple(found)


def is_aligned(exchange: Exchange, itemsize: int) -> bool:
    """Whether every tile starts and ends at the tiling, or spans the dimension on both sides."""
    rows = tiling_rows(itemsize)
    known = divisors(exchange)
    wanted = {len(known) - 1: LANES, len(known) - 2: rows} if len(known) > 1 else {0: 8 * LANES}
    return all(
        known[axis] % multiple == 0 or _is_whole(exchange, axis)
        for axis, multiple in wanted.items()
    )


def _is_whole(exchange: Exchange, axis: int) -> bool:
    tiles = exchange.dims[axis]
    return tiles.source.parts == tiles.target.parts == 1 and not _is_cut(exchange, axis)


def _is_cut(exchange: Exchange, axis: int) -> bool:
    return exchange.rule.pieces > 1 and axis == exchange.rule.cut


@dataclass(frozen=True)
class Slots:
    """Slots for tiles: `window`, the extents of the largest piece; `slot`, the same padded."""

    window: tuple[int, ...]
    slot: tuple[int, ...]
    rows: int
    outgoing: int
    incoming: int
    pack_padding: str
    unpack_shape: tuple[int, ...]

    @property
    def padding(self) -> float:
        """How much larger a slot is than the largest piece."""
        return math.prod(self.slot) / math.prod(self.window)

    @staticmethod
    def of(exchange: Exchange, itemsize: int) -> Slots:
        """The slots of an exchange; 64-bit elements travel as two 32-bit ones."""
        rows = tiling_rows(itemsize)
        window = tuple(_widest(exchange, axis) for axis in range(len(exchange.dims)))
        pieces = exchange.rule.pieces
        ends = [_reach(exchange, axis, width) for axis, width in enumerate(window)]
        over = [
            max(end - dim.size, 0) for (end, _), dim in zip(ends, exchange.source.dims, strict=True)
        ]
        return Slots(
            window=window,
            slot=_padded(window, rows),
            rows=rows,
            outgoing=math.prod(tiles.max_peers_of_source for tiles in exchange.dims) * pieces,
            incoming=math.prod(tiles.max_peers_of_target for tiles in exchange.dims) * pieces,
            pack_padding=f"[{', '.join(f'(0, {more})' for more in over)}]" if any(over) else "",
            unpack_shape=tuple(
                max(end, dim.size) for (_, end), dim in zip(ends, exchange.target.dims, strict=True)
            ),
        )


def _widest(exchange: Exchange, axis: int) -> int:
    width = exchange.dims[axis].max_width
    if not _is_cut(exchange, axis):
        return width
    _, end = exchange.piece(width, 0)
    return int(end)


def _reach(exchange: Exchange, axis: int, width: int) -> tuple[int, int]:
    """How far windows reach from the start of the source and of the target shard."""
    tiles = exchange.dims[axis]
    pairs = tiles.pairs
    from_source = pairs.low - tiles.source.intervals[0][pairs.source]
    from_target = pairs.low - tiles.target.intervals[0][pairs.target]
    # The last piece of a tile starts at most this far into it.
    into = int(pairs.width.max()) if _is_cut(exchange, axis) else 0
    return int(from_source.max()) + into + width, int(from_target.max()) + into + width


def _padded(window: tuple[int, ...], rows: int) -> tuple[int, ...]:
    if len(window) == 1:
        return (-(-window[0] // (rows * LANES)) * rows, LANES)
    *leading, last_rows, columns = window
    return (*leading, -(-last_rows // rows) * rows, -(-columns // LANES) * LANES)
