"""Block sizes of a matmul kernel. A block is the part of an operand or result in one VMEM slot.

Blocks consist of whole memory tiles. Together they exceed an extent only slightly, because the MXU
multiplies the excess too. They are as large as VMEM allows, up to MOST: larger blocks give the MXU
more work between copies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from shardwright.codegen.backends.pallas_tpu.memory import LANES, round_up
from shardwright.ir.dtypes import itemsize

Extents = tuple[int, int, int, int]
"""Extents along (batch, i, j, k)."""

BATCH, DIM_I, DIM_J, DIM_K = range(4)
FACTORS = ("batch", "i", "j", "k")
DIMS = {"a": (BATCH, DIM_I, DIM_J), "b": (BATCH, DIM_J, DIM_K), "c": (BATCH, DIM_I, DIM_K)}
MOST: tuple[Extents, ...] = (
    (1, 576, 4096, 1152),
    (1, 576, 1152, 1152),
    (1, 256, 512, 512),
    (1, 128, 256, 256),
)
"""The upper bounds on block sizes, tried in this order until the blocks fit in VMEM."""
SUM = 4
"""The bytes of an element of a partial sum (float32 or int32)."""
SHARE = 5, 8
"""The share of VMEM for a kernel's blocks, as (numerator, denominator). The compiler needs the
rest."""
MAX_DEPTH = 1152
"""The most elements along j that kernels multiply at a time. The actual step divides the block; a
larger block whose step would be less than half of this is not used."""
PER_BLOCK = 64
"""The fixed cost of a block, as the equivalent number of elements along an extent. A v5e takes as
long to read the other operand's block for 128 columns as to multiply 240 columns."""
MOST_SLOTS = 64
"""The most blocks that stay in VMEM, each with its own semaphore."""


@dataclass(frozen=True)
class BlockSizes:
    """The blocks of a product. `sizes`: the extents of a block, (batch, i, j, k); `stays`: whether
    all blocks of the operand that does not travel stay in VMEM; `keeps`: whether all sums stay in
    VMEM, for products in which every part adds to every sum; `nbytes`: the bytes of VMEM used in
    total."""

    sizes: Extents
    stays: bool
    keeps: bool
    nbytes: int


@dataclass(frozen=True)
class LocalProduct:
    """The product of one half of a part, to be split into blocks. `travels`: the side ("a", "b" or
    "c") that is sent in parts along `factor`; `dtype`, `out`: the dtypes of the operands and of the
    result."""

    extents: Extents
    travels: str
    factor: int
    dtype: str
    out: str

    def blocks(self, vmem: int) -> BlockSizes:
        """Choose blocks that fit in `vmem` bytes of VMEM."""
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
        """Whether all parts use the same operand, which can then stay in VMEM."""
        return any(self.factor not in DIMS[side] for side in self._staying)

    @property
    def _staying(self) -> tuple[str, ...]:
        return tuple(side for side in "ab" if side != self.travels)

    def _sizes(self, most: Extents) -> Extents:
        batch, i, j, k = (
            block_of(extent, unit_of(f, self.dtype, self.out), most[f], in_steps=f == DIM_J)
            for f, extent in enumerate(self.extents)
        )
        return batch, i, j, k

    def _counts(self, sizes: Extents) -> list[int]:
        return [-(-extent // size) for extent, size in zip(self.extents, sizes, strict=True)]

    def _slots(self, side: str, counts: list[int], *, stays: bool) -> int:
        is_same = side != self.travels and self.factor not in DIMS[side]
        return math.prod(counts[f] for f in DIMS[side]) if stays and is_same else 2

    def _is_possible(self, sizes: Extents, stays: bool, keeps: bool) -> bool:
        """Return whether there are enough semaphores for the blocks that stay and, if sums are in
        HBM, at least four blocks of sums. With fewer, a block could be read again before it is
        written."""
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


def unit_of(factor: int, dtype: str, out: str) -> int:
    """Return the unit of which block sizes along a factor are multiples; `dtype`, `out`: the dtypes
    of the operands and of the result."""
    return (1, 32 // min(itemsize(dtype), itemsize(out)), LANES, LANES)[factor]


def halves_of(part: int, ways: int, unit: int, block: int) -> tuple[int, ...]:
    """Split a part into halves, one per direction (`ways`), and return their sizes. The first half
    is rounded up to whole units if both halves then have equally many blocks; otherwise the halves
    are equal.

    >>> halves_of(1030, 2, 16, 528), halves_of(40, 2, 16, 16), halves_of(40, 1, 16, 16)
    ((528, 502), (20, 20), (40,))
    """
    if ways == 1:
        return (part,)
    first = round_up(part // 2, unit)
    halves = (first, part - first)
    counts = {-(-half // block) for half in halves}
    return halves if halves[1] > 0 and len(counts) == 1 else (part // 2, part // 2)


def depth_of(size: int) -> int:
    """Return the largest step along j that divides a block: whole lane tiles, at most MAX_DEPTH.

    >>> depth_of(4096), depth_of(2560), depth_of(1408), depth_of(384)
    (1024, 640, 128, 384)
    """
    return max(one for one in range(LANES, min(size, MAX_DEPTH) + 1, LANES) if size % one == 0)


def block_of(extent: int, unit: int, most: int, *, in_steps: bool = False) -> int:
    """Choose the block size along a dimension, a multiple of `unit` and at most `most`, so that
    blocks are few and exceed the extent only slightly; `in_steps`: whether kernels multiply the
    block in steps.

    >>> block_of(1024, 8, 512), block_of(8200, 8, 512), block_of(8200, 128, 1024), block_of(5, 8, 8)
    (512, 456, 768, 8)
    """
    every = range(unit, max(unit, min(most, round_up(extent, unit))) + 1, unit)
    sizes = [
        size
        for size in every
        if not in_steps or size <= MAX_DEPTH or 2 * depth_of(size) >= MAX_DEPTH
    ]
    return min(
        sizes, key=lambda size: (round_up(extent, size) + PER_BLOCK * -(-extent // size), -size)
    )
