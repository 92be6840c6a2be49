"""The tiles of a matmul's kernel, and the bytes that it moves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shardwright.ir.dtypes import is_floating, itemsize
from shardwright.ir.layout import Layout
from shardwright.ir.matmul import SIDES, Matmul, Side
from shardwright.ir.multiplication import Multiplication
from shardwright.ir.product_terms import added, product_layout, terms_at

LINE = 128
"""Bytes of a row of a tile along j."""
LARGE = 128, 128
"""Rows and columns of the largest tiles."""
EXACT = 64, 128
"""Those of float32, which is multiplied exactly, and not by tensor cores."""
LEAST = 16
"""What tensor cores multiply at least along each dimension; of int8 twice that along j."""
SMALL = 64 * 128
"""Elements of a tile up to which four warps multiply it."""


@dataclass(frozen=True)
class KernelTiles:
    """Blocks of i, k and j, and what a program is compiled with."""

    blocks: tuple[int, int, int]
    warps: int
    stages: int


def tiles_of(product: Multiplication, layouts: dict[Side, Layout]) -> KernelTiles:
    """Return the tiles of a product: no larger than what comes at a time, and leaves."""
    matmul = product.matmul
    i, j, k = (matmul.batch + n for n in range(3))
    rows, depth, columns = (min(_extents(product, layouts, factor)) for factor in (i, j, k))
    size = itemsize(matmul.dtype)
    most = EXACT if matmul.dtype == "float32" else LARGE
    blocks = (
        _power(rows, LEAST, most[0]),
        _power(columns, LEAST, most[1]),
        _power(depth, LEAST * (1 if is_floating(matmul.dtype) else 2), LINE // size),
    )
    return KernelTiles(blocks, 4 if blocks[0] * blocks[1] <= SMALL else 8, 3)


def _extents(product: Multiplication, layouts: dict[Side, Layout], factor: int) -> list[int]:
    """Return the extents of a factor in the product and in the shards that have it."""
    matmul = product.matmul
    found = [product.local_extents[factor]]
    for side in SIDES:
        if factor in matmul.factors(side):
            shape = layouts[side].local_shape[-len(matmul.factors(side)) :]
            found.append(shape[matmul.factors(side).index(factor)])
    return found


def _power(extent: int, least: int, most: int) -> int:
    """Return the least power of two that is no less than an extent, within bounds."""
    return max(least, min(most, 1 << max(0, extent - 1).bit_length()))


def received(product: Multiplication, layouts: dict[Side, Layout]) -> tuple[int, int, int]:
    """Return the bytes that come to the busiest device: of lhs, of rhs, and of terms; those of
    one device, that with the most of all."""
    matmul, whole = product.matmul, product_layout(product).boxes()
    some = _volume(whole) > 0
    found = []
    for side in SIDES[:2]:
        used = whole[:, list(matmul.factors(side))]
        lacks = added(product, side) * _volume(used) - _shared(used, _boxes(layouts, matmul, side))
        found.append(np.where(some, lacks, 0) * itemsize(matmul.dtype))
    used, wanted = whole[:, list(matmul.factors("out"))], _boxes(layouts, matmul, "out")
    terms, adds = _terms(product, some)
    own = np.where(some & (adds > 0), _shared(used, wanted), 0)
    found.append((terms * _volume(wanted) - own) * itemsize(matmul.out_dtype))
    busiest = int(np.argmax(sum(found)))
    lhs, rhs, out = (int(each[busiest]) for each in found)
    return lhs, rhs, out


def _boxes(layouts: dict[Side, Layout], matmul: Matmul, side: Side) -> np.ndarray:
    """Return the ranges of shards, [position, dimension, end], without those of terms."""
    return layouts[side].boxes()[:, -len(matmul.factors(side)) :]


def _terms(product: Multiplication, some: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return how many terms each device's result is the sum of, empty ones left out, and how many
    it would be with these. `some`: whose products have elements."""
    positions = np.arange(len(some), dtype=np.int64)
    own, low, high = np.stack(terms_at(product, "out", positions))
    made = np.unique(own[some])
    count = np.searchsorted(made, high) - np.searchsorted(made, low)
    return count, high - low


def _volume(boxes: np.ndarray) -> np.ndarray:
    widths = np.maximum(boxes[..., 1] - boxes[..., 0], 0)
    found: np.ndarray = np.prod(widths, axis=1, dtype=np.int64)
    return found


def _shared(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    low = np.maximum(one[..., 0], other[..., 0])
    high = np.minimum(one[..., 1], other[..., 1])
    return _volume(np.stack([low, high], axis=-1))
