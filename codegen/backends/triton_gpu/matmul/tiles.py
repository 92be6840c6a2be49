"""The block sizes of a matmul's kernel."""

from __future__ import annotations

from dataclasses import dataclass

from shardwright.ir.dtypes import is_floating, itemsize
from shardwright.ir.layout import Layout
from shardwright.ir.matmul import SIDES, Side
from shardwright.ir.multiplication import Multiplication

LINE = 128
"""The largest extent of a block along j, in bytes."""
LARGE = 128, 128
"""The rows and columns of the largest tiles of the result."""
EXACT = 64, 128
"""The rows and columns of the largest tiles for float32, which is multiplied without tensor cores
to keep its precision."""
LEAST = 16
"""The smallest extent that tensor cores multiply along each dimension; for int8, twice as much
along j."""
SMALL = 64 * 128
"""The most elements of a tile that a program of four warps computes; larger tiles take eight
warps."""


@dataclass(frozen=True)
class KernelTiles:
    """The extents of a block along i, k and j, and the compile options of a program: its number of
    warps and of pipeline stages."""

    blocks: tuple[int, int, int]
    warps: int
    stages: int


def tiles_of(product: Multiplication, layouts: dict[Side, Layout]) -> KernelTiles:
    """Choose the block sizes for a product. They do not greatly exceed the smallest shard or
    product, because data arrives shard by shard."""
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
    matmul = product.matmul
    found = [product.local_extents[factor]]
    for side in SIDES:
        if factor in matmul.factors(side):
            shape = layouts[side].local_shape[-len(matmul.factors(side)) :]
            found.append(shape[matmul.factors(side).index(factor)])
    return found


def _power(extent: int, least: int, most: int) -> int:
    return max(least, min(most, 1 << max(0, extent - 1).bit_length()))
