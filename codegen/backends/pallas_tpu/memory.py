"""TPU memory layouts of arrays, and the dimension order of kernels.

HBM is tiled over the last two dimensions of an array's layout. A tile has 128 lanes and 8 rows;
tiles of arrays with few rows have fewer rows, and tiles of 1-byte elements have 32 rows if 32
divides the array's number of rows. A vector is tiled by 1,024 elements. XLA may choose any two
dimensions for rows and lanes, and by default takes the two that need the least padding. Source:
layouts reported by the TPU compiler (jax 0.10.2, libtpu 0.0.42), which
`tests/backends/pallas_tpu/test_compile_tpu.py` checks again.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

LANES = 128
FLAT_UNIT = 1024
MAX_PACKED = 1 << 15
"""The most elements of a tile that XLA packs. For larger tiles, XLA's relayout takes seconds to
compile and megabytes of code (measured: 0.4 MB and 0.9 s for 200x200, 1.1 MB and 2.8 s for
500x500)."""

View = tuple[int, ...]
"""Tensor dimensions in the kernels' order; the last two are tiled as rows and lanes."""


def round_up(extent: int, unit: int) -> int:
    return -(-extent // unit) * unit


def tile_rows(rows: int, itemsize: int) -> int:
    """Return the number of rows of an HBM tile in an array of `rows` rows. A 64-bit element counts
    as two of 32 bits.

    >>> [tile_rows(rows, 4) for rows in (1, 2, 3, 4, 5, 100)]
    [1, 2, 4, 4, 8, 8]
    >>> [tile_rows(rows, 1) for rows in (1, 5, 32, 100)]
    [4, 8, 32, 8]
    """
    if itemsize == 1 and rows % 32 == 0:
        return 32
    least = max(4 // itemsize, 1)
    return max(least, min(8, 1 << (rows - 1).bit_length()))


def in_memory(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return an array's shape in memory: its last two dimensions padded to whole tiles.

    >>> in_memory((2, 1030, 1000), 2), in_memory((3, 5), 4)
    ((2, 1032, 1024), (4, 128))
    """
    *leading, rows, lanes = shape
    return (*leading, round_up(rows, tile_rows(rows, itemsize)), round_up(lanes, LANES))


def padded_elements(shape: tuple[int, ...], view: View, itemsize: int) -> int:
    """Return the number of elements, padding included, of an array in memory, with its dimensions
    in the order of `view`."""
    if len(shape) == 1:
        return round_up(shape[0], FLAT_UNIT)
    return math.prod(in_memory(tuple(shape[axis] for axis in view), itemsize))


def views(rank: int) -> Iterator[View]:
    """Yield one view for each choice of the dimensions for rows and lanes, beginning with the
    array's own order. The other dimensions keep their order."""
    if rank == 1:
        yield (0,)
    for lanes, rows in itertools.permutations(reversed(range(rank)), 2):
        yield (*(axis for axis in range(rank) if axis not in (rows, lanes)), rows, lanes)


def default_view(shape: tuple[int, ...], itemsize: int) -> View:
    """Return the dimension order in which XLA by default stores an array.

    >>> default_view((4096, 3), 4), default_view((7, 300), 4), default_view((16, 5, 64), 4)
    ((1, 0), (0, 1), (1, 0, 2))
    """
    return min(views(len(shape)), key=lambda view: padded_elements(shape, view, itemsize))


def tiling(itemsize: int, rank: int) -> tuple[int, ...]:
    """Return the extents of a memory tile over the last dimensions. For 1-byte elements, return the
    coarsest tiling that a TPU may choose."""
    rows = 32 if itemsize == 1 else 8
    return (FLAT_UNIT * rows // 8,) if rank == 1 else (rows, LANES)
