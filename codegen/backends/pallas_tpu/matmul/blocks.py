"""Blocks of a matmul's kernel: what of the operands and of the result is in VMEM at a time.

A block has whole tiles of memory and a size that, as often as it takes, reaches little over an
extent, which is padded to that. It is as large as VMEM allows, up to MOST: between copies the MXU
has the more to do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from shardwright.codegen.backends.pallas_tpu.memory import LANES, round_up
from shardwright.ir.dtypes import itemsize

Extents = tuple[int, int, int, int]
"""Of the batch, i, j and k."""

BATCH, DIM_I, DIM_J, DIM_K = range(4)
DIMS = {"a": (BATCH, DIM_I, DIM_J), "b": (BATCH, DIM_J, DIM_K), "c": (BATCH, DIM_I, DIM_K)}
MOST: tuple[Extents, ...] = (
    (1, 512, 4096, 1024),
    (1, 512, 1024, 1024),
    (1, 256, 512, 512),
    (1, 128, 256, 256),
)
"""The largest blocks that are tried, in turn."""
SUM = 4
"""Bytes of a sum on its way: float32 or int32."""
SHARE = 5, 8
"""The part of VMEM that a kernel's own blocks take; the compiler takes some for itself."""
STRETCH = 1024
"""What kernels multiply at a time along j, where a block has more."""
MOST_SLOTS = 64
"""Blocks that stay in VMEM, each with a semaphore."""


@dataclass(frozen=True)
class BlockSizes:
    """The blocks of a product. `sizes`: of one, (batch, i, j, k); `stays`: whether all blocks of
    the operand that does not travel stay in VMEM, `keeps`: all sums, where every part adds to all
    of them; `nbytes`: what all of it takes."""

    sizes: Extents
    stays: bool
    keeps: bool
    nbytes: int


@dataclass(frozen=True)
class LocalProduct:
    """What is cut into blocks: what goes on one way of a part. `travels`: "a", "b" or "c", parts
    along a factor; `dtype`, `out`: of the operands and of the result."""

    extents: Extents
    travels: str
    factor: int
    dtype: str
    out: str

    def blocks(self, vmem: int) -> BlockSizes:
        """Return the blocks for so many bytes of VMEM."""
        budget = vmem * SHARE[0] // SHARE[1]
        for most in MOST:
            sizes = self._sizes(most)
            for stays, keeps in ((True, True), (False, True), (True, False), (False, False)):
                nbytes = self._nbytes(sizes, stays, keeps)
                if nbytes <= budget and self._is_possible(sizes, stays, keeps):
                    return BlockSizes(
                        sizes, stays and self.may_stay, keeps and self.factor == DIM_J, nbytes
                    )
        raise AssertionError(f"no blocks of {self} in {vmem} bytes")

    @property
    def may_stay(self) -> bool:
        """Whether an operand is the same for all parts."""
        return any(self.factor not in DIMS[side] for side in self._staying)

    @property
    def _staying(self) -> tuple[str, ...]:
        return tuple(side for side in "ab" if side != self.travels)

    def _sizes(self, most: Extents) -> Extents:
        narrow = min(itemsize(self.dtype), itemsize(self.out))
        units = 1, 32 // narrow, LANES, LANES
        triples = zip(self.extents, units, most, strict=True)
        batch, i, j, k = (block_of(*each) for each in triples)
        return batch, i, j, k

    def _counts(self, sizes: Extents) -> list[int]:
        return [-(-extent // size) for extent, size in zip(self.extents, sizes, strict=True)]

    def _slots(self, side: str, counts: list[int], *, stays: bool) -> int:
        is_same = side != self.travels and self.factor not in DIMS[side]
        return math.prod(counts[f] for f in DIMS[side]) if stays and is_same else 2

    def _is_possible(self, sizes: Extents, stays: bool, keeps: bool) -> bool:
        """Return whether semaphores are enough for what stays; and, where sums are in HBM, whether
        they are there again before they are read, which takes four blocks of them."""
        counts = self._counts(sizes)
        few = max(self._slots(side, counts, stays=stays) for side in "ab") <= MOST_SLOTS
        return few and (keeps or self.factor != DIM_J or math.prod(counts) // counts[DIM_J] >= 4)

    def _nbytes(self, sizes: Extents, stays: bool, keeps: bool) -> int:
        counts = self._counts(sizes)
        wide, narrow = itemsize(self.dtype), itemsize(self.out)
        tile = sizes[DIM_I] * sizes[DIM_K]
        total = sum(
            self._slots(side, counts, stays=stays) * math.prod(sizes[f] for f in DIMS[side]) * wide
            for side in "ab"
        )
        in_hbm = self.factor == DIM_J and not keeps
        sums = math.prod(counts) // counts[DIM_J] if self.factor == DIM_J and keeps else 1
        made = 2 * tile * (SUM if in_hbm else narrow) * (2 if in_hbm or self.travels == "c" else 1)
        return total + sums * tile * SUM + made


def block_of(extent: int, unit: int, most: int) -> int:
    """Return the size of a block along a dimension: a multiple of a unit, above STRETCH of that, at
    most `most`, such that blocks reach little over the extent, and of such the largest.

    >>> block_of(1024, 8, 512), block_of(8200, 8, 512), block_of(8200, 128, 1024), block_of(5, 8, 8)
    (512, 496, 768, 8)
    """
    every = range(unit, max(unit, min(most, round_up(extent, unit))) + 1, unit)
    sizes = [size for size in every if size <= STRETCH or size % STRETCH == 0]
    least = min(round_up(extent, size) for size in sizes)
    # A little more is worth larger blocks: each has its copies and its waits.
    near = (size for size in sizes if round_up(extent, size) * 32 <= least * 33)
    return max(near)
