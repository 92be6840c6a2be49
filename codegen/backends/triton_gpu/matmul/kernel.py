"""Compute the numbers in a matmul's kernels: transfers, divisors of offsets, and ends of blocks.

The statements are in `templates/triton_gpu/matmul/`. All devices run the same kernel, so its
assumptions about offsets and blocks must hold on every device.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shardwright.codegen.backends.triton_gpu.matmul.kernel_text import (
    MatmulParameter,
    MovedOperand,
    MultiplyText,
    PartRows,
)
from shardwright.codegen.backends.triton_gpu.matmul.tiles import KernelTiles
from shardwright.codegen.text.python_text import neutral_text
from shardwright.ir.dtypes import is_floating, itemsize
from shardwright.ir.layout import Layout
from shardwright.ir.matmul import SIDES, Side
from shardwright.ir.multiplication import Multiplication
from shardwright.ir.product_terms import added, product_layout, terms_at

LINE = 16
"""The bytes of the widest load or store."""
ALIGNED = 128
"""The alignment of slots, in bytes."""
FLAGS = 12
"""The bytes of flags and counters for each device."""
BLOCK = 2048
"""The number of units in a block that is copied, or of elements in a block that is added."""
COLUMNS = 128
"""The most units in a row of a copied block."""
UNITS = {1: "tl.uint8", 2: "tl.int16", 4: "tl.int32", 8: "tl.int64"}
"""The Triton type of a unit to copy, by its size in bytes."""
DESCRIBED = 2
"""The size in bytes of the elements for which TMA is used. It is not used for int8, because wgmma
reads int8 blocks of b by columns, nor for float32."""
FIELDS = {"lhs": 2, "rhs": 3}
"""For each operand, the index of its part number in an entry of the table of ranges along j."""
COMES = (
    MatmulParameter(
        "come", "int32 [parts]: number of programs of `pull` done with each, over all calls"
    ),
    MatmulParameter("pullers", "number of programs of `pull`"),
    MatmulParameter("polls", "number of polls for a part before giving up"),
)
PLACES = MatmulParameter(
    "places", "int64 [devices, 2]: where this device's terms go, and are counted"
)


@dataclass(frozen=True)
class MatmulKernels:
    """The kernels of a product."""

    product: Multiplication
    layouts: dict[Side, Layout]
    tiles: KernelTiles

    @cached_property
    def whole(self) -> np.ndarray:
        """The ranges of each device's product, as int64[positions, factors, 2]."""
        return product_layout(self.product).boxes()

    @cached_property
    def some(self) -> np.ndarray:
        """Whether the product at each position is non-empty."""
        return _volume(self.whole) > 0

    def held(self, side: Side) -> np.ndarray:
        """Return the ranges of a side's shards, without the dimensions of terms, as
        int64[positions, dimensions, 2]."""
        return self.layouts[side].boxes()[:, -len(self.product.matmul.factors(side)) :]

    def used(self, side: Side) -> np.ndarray:
        """Return the ranges of a side that each device's product reads or writes, as
        int64[positions, dimensions, 2]."""
        return self.whole[:, list(self.product.matmul.factors(side))]

    def dtype(self, side: Side) -> str:
        return self.product.matmul.out_dtype if side == "out" else self.product.matmul.dtype

    @cached_property
    def moved(self) -> list[Side]:
        """The operands that move because some device multiplies data that is not in its own
        shard."""
        return [
            side
            for side in SIDES[:2]
            if added(self.product, side) > 1 or (self.held(side) != self.used(side)).any()
        ]

    @property
    def adds(self) -> bool:
        """Whether any operand has terms, which are added on arrival."""
        return any(added(self.product, side) > 1 for side in SIDES[:2])

    @cached_property
    def terms(self) -> tuple[np.ndarray, ...]:
        """For each position: the number of the term that its product is, the start and end of the
        range of terms that its result adds, and how many terms in this range are not empty."""
        positions = np.arange(len(self.some), dtype=np.int64)
        own, low, high = np.stack(terms_at(self.product, "out", positions))
        made = np.unique(own[self.some])
        return own, low, high, np.searchsorted(made, high) - np.searchsorted(made, low)

    @cached_property
    def pushes(self) -> bool:
        """Whether any device's result differs from its own product, so that terms are sent."""
        wanted = _volume(self.held("out"))
        own, low, high, count = self.terms
        has = _shared(self.used("out"), self.held("out")) == wanted
        keeps = (count == 1) & (low <= own) & (own < high) & self.some & has
        return bool((~keeps & (wanted > 0)).any())

    def received(self) -> tuple[int, int, int]:
        """Return the bytes that the busiest device receives of lhs, of rhs, and of the result's
        terms."""
        found = []
        for side in SIDES[:2]:
            used = self.used(side)
            lacks = added(self.product, side) * _volume(used) - _shared(used, self.held(side))
            found.append(np.where(self.some, lacks, 0) * itemsize(self.dtype(side)))
        wanted, (_, low, high, count) = self.held("out"), self.terms
        own = np.where(self.some & (high > low), _shared(self.used("out"), wanted), 0)
        found.append((count * _volume(wanted) - own) * itemsize(self.dtype("out")))
        busiest = int(np.argmax(sum(found)))
        lhs, rhs, out = (int(each[busiest]) for each in found)
        return lhs, rhs, out

    def ends(self, factor: int) -> np.ndarray:
        """Return all starts and ends of shards and products along a factor, sorted."""
        factors = self.product.matmul.factors
        found = [self.held(s)[:, factors(s).index(factor)] for s in SIDES if factor in factors(s)]
        return np.unique(np.concatenate([self.whole[:, factor], *found]))

    def unit(self, factor: int, dtype: str) -> int:
        """Return the largest number of elements, within 16 bytes, that divides all starts and ends
        along a factor."""
        return math.gcd(LINE // itemsize(dtype), *map(int, self.ends(factor)))

    def cuts(self, factor: int) -> Iterator[tuple[np.ndarray, int]]:
        """Yield, for each range of products along a factor, where shard boundaries cut it, relative
        to its start, and its extent."""
        ends = self.ends(factor)
        for low, high in np.unique(self.whole[self.some, factor], axis=0):
            yield ends[(low < ends) & (ends < high)] - low, int(high - low)

    def fits(self, factor: int, block: int, *, to_the_end: bool = False) -> bool:
        """Return whether all blocks between cuts are whole along a factor; `to_the_end`: whether to
        allow a smaller last block of a product."""
        return not any(
            (cuts % block).any() or (not to_the_end and extent % block)
            for cuts, extent in self.cuts(factor)
        )

    def slot(self, side: Side) -> int:
        """Return the number of elements of a slot for any shard of a side."""
        unit = ALIGNED // itemsize(self.dtype(side))
        return -(-int(_volume(self.held(side)).max()) // unit) * unit

    @property
    def shared(self) -> int:
        """The bytes of memory per device that peers access: flags, and two slots each of operands
        and of the terms of the result (`TritonMatmul.layout`)."""
        text = self.text
        flags = -(-FLAGS * len(self.whole) // ALIGNED) * ALIGNED
        offered = -(-2 * text.slot * itemsize(self.dtype("lhs")) // ALIGNED) * ALIGNED
        return flags + offered + 2 * text.sums * itemsize(self.dtype("out"))

    @property
    def arrivals(self) -> int:
        """The bytes of memory for the operands that move, on the device that needs the most."""
        size = itemsize(self.dtype("lhs"))
        sizes = [-(-_volume(self.used(side)) * size // LINE) * LINE for side in self.moved]
        return int(np.sum(sizes, axis=0).max()) if sizes else 0

    @cached_property
    def described(self) -> bool:
        """Whether TMA can copy blocks of operands. Elements must have DESCRIBED bytes, rows must be
        whole lines, and no block may extend beyond the data between two cuts, except at the end of
        an operand, where TMA reads zeros."""
        matmul = self.product.matmul
        i, j, k = range(matmul.batch, matmul.batch + 3)
        one = bool((_volume(self.whole[self.some, :i]) == 1).all())
        rows, columns, depth = self.tiles.blocks
        units = {self.unit(factor, matmul.dtype) for factor in (j, k)}
        return (
            itemsize(matmul.dtype) == DESCRIBED
            and units == {LINE // DESCRIBED}
            and self.fits(i, rows, to_the_end=one)
            and self.fits(k, columns, to_the_end=True)
            and (self.fits(j, depth) or (one and not any(c.size for c, _ in self.cuts(j))))
        )

    @property
    def names(self) -> tuple[str, ...]:
        return (
            *("offer", "announce", *["pull"] * bool(self.moved)),
            *("multiply", *["add"] * self.pushes),
        )

    @property
    def templates(self) -> tuple[str, ...]:
        """The paths of the kernels' templates, in module order."""
        pull = ["terms" if self.adds else "pull"] * bool(self.moved)
        described, add = ["described"] * self.described, ["add"] * self.pushes
        names = "offer", *pull, "product", *described, "multiply", *add
        return tuple(f"triton_gpu/matmul/{name}.py.jinja" for name in names)

    @cached_property
    def text(self) -> MultiplyText:
        matmul, pushes, inside = self.product.matmul, self.pushes, "(along < depth - done)"
        j, k = matmul.batch + 1, matmul.batch + 2
        lhs, rhs = (self.slot(side) * (side in self.moved) for side in SIDES[:2])
        starts, (rows, columns, depth) = {"lhs": 0, "rhs": lhs}, self.tiles.blocks
        deep, wide = self.fits(j, depth), self.fits(k, columns)
        masks = [f"{inside}[:, None]"] * (not deep) + ["(column < columns)"] * (not wide)
        ends = "rows" if wide else "rows, columns"
        kept = PLACES if pushes else MatmulParameter("c", "the result")
        return MultiplyText(
            devices=len(self.whole),
            moved=tuple(MovedOperand(s, starts[s], FIELDS[s]) for s in self.moved),
            operands=f"operands{', or their descriptors for TMA' * self.described}",
            offers=tuple(self._offers(lhs + rhs)),
            factors=f"total, a, b, a_at, b_at, across, {ends}, start, depth, a_row, b_row",
            done="_" if deep else "done",
            slot=lhs + rhs,
            sums=self.slot("out") * int(self.terms[-1].max()) * pushes,
            adds=self.adds,
            copied=self._rows(),
            block=BLOCK,
            rows=rows,
            columns=columns,
            depth=depth,
            a_unit=self.unit(j, matmul.dtype),
            b_unit=self.unit(k, matmul.dtype),
            c_unit=self.unit(k, matmul.out_dtype),
            a_mask="" if deep else f"{inside}[None, :]",
            b_mask=" & ".join(masks),
            described=self.described,
            widens=matmul.dtype == "bfloat16",
            pushes=pushes,
            element=f"tl.{matmul.dtype}",
            result=f"tl.{matmul.out_dtype}",
            pulled=_wide(matmul.dtype),
            total=_wide(matmul.out_dtype),
            neutral=self._neutral(),
            parameters=(kept, *(COMES if self.moved else ())),
        )

    def _offers(self, slot: int) -> Iterator[MatmulParameter]:
        for side in self.moved:
            yield MatmulParameter(side, "the shard of this device")
            yield MatmulParameter(f"{side}_size", "number of elements in it")
        if self.moved:
            yield MatmulParameter("offered", f"two slots of {slot} elements")

    def _rows(self) -> PartRows:
        matmul, widest = self.product.matmul, 1
        size = itemsize(matmul.dtype)
        line = unit = LINE // size
        for side in self.moved:
            lengths = (
                each[:, -1, 1] - each[:, -1, 0] for each in (self.held(side), self.used(side))
            )
            widest = max(widest, min(int(each.max()) for each in lengths))
            unit = math.gcd(unit, self.unit(matmul.factors(side)[-1], matmul.dtype))
        # Elements to add cannot be combined into wider units.
        width = 1 if self.adds else min(unit, max(UNITS) // size)
        lanes, units = line // width if unit == line else 1, -(-widest // width)
        columns = min(COLUMNS, 1 << (units - 1).bit_length())
        across, aligned = -(-units // columns), lanes * width * size
        return PartRows(
            UNITS[width * size], width, lanes, BLOCK // columns, columns, across, aligned
        )

    def _neutral(self) -> str:
        """Return the value of a result that has no terms, as an expression, or "" if no device has
        such a result."""
        lacks = (self.terms[-1] == 0) & (_volume(self.held("out")) > 0)
        operator = self.product.matmul.out.operator
        return neutral_text(self.dtype("out"), operator) if lacks.any() else ""


def _wide(dtype: str) -> str:
    return "tl.float32" if is_floating(dtype) else "tl.int32"


def _volume(boxes: np.ndarray) -> np.ndarray:
    widths = np.maximum(boxes[..., 1] - boxes[..., 0], 0)
    found: np.ndarray = np.prod(widths, axis=1, dtype=np.int64)
    return found


def _shared(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    low = np.maximum(one[..., 0], other[..., 0])
    high = np.minimum(one[..., 1], other[..., 1])
    return _volume(np.stack([low, high], axis=-1))
