"""The properties of a kernel that its form proves at emission. Neither the interpreter nor the TPU
compiler checks them: both accept false hints and windows that extend beyond the padding.

Every tile of every device is a product of pieces along the dimensions (`pieces.py`), and so are its
DMA windows. So a property that holds for every piece of every dimension holds on all devices:

    hints     starts and sizes declared as multiples of a divisor are such multiples
    windows   DMA reads and writes stay inside their buffer in memory
    places    no two tiles of a target shard overlap
    shifts    no tile needs a shift along a dimension that is not rolled
    routes    the rounds bring each offset's data to its place, and overwrite no data still needed
    ends      in the relayed form, every tile is aligned in both shards and starts at a multiple of
              its extents, tiles fill the target shards, and no place of a shard is used twice
    boxes     in the gathered form, every place is an aligned box of the target shard, the same on
              all devices that send to each other, and the boxes fill the target shard
"""

from __future__ import annotations

import numpy as np

from shardwright.codegen.backends.pallas_tpu.pieces import Pieces
from shardwright.ir.algebra.index import Integers
from shardwright.ir.errors import InternalError


def fits_slots(window: int, reach: int, pieces: Pieces, about: str) -> None:
    """Check that slots hold every piece along a dimension, and that XLA unpacks each inside the
    padded target shard. `window`: the extent of a slot's contents; `reach`: that of the shard."""
    expect(int(pieces.width.max()) <= window, f"{about}: a tile is wider than a slot")
    widest = np.full_like(pieces.low, window)
    inside(pieces.low - pieces.target_low, widest, reach, f"{about}, unpacking")


def inside(start: Integers, size: Integers, extent: int, about: str) -> None:
    """Check that windows stay inside a buffer of an extent."""
    within = (start >= 0).all() and (size >= 0).all() and (start + size <= extent).all()
    expect(bool(within), f"{about}: a window reaches beyond {extent}")


def apart(shard: Integers, start: Integers, size: Integers, about: str) -> None:
    """Check that tiles of one shard, in the order of their starts, do not overlap."""
    same = shard[1:] == shard[:-1]
    expect(not (same & (start[:-1] + size[:-1] > start[1:])).any(), f"{about}: two tiles overlap")


def expect(holds: bool, message: str) -> None:
    """Raise InternalError with a message unless a property holds."""
    if not holds:
        raise InternalError(message)
