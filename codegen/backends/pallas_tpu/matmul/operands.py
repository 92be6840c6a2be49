"""The template context for the operands and VMEM buffers of matmul kernels."""

from __future__ import annotations

import math
from dataclasses import dataclass

from shardwright.codegen.backends.pallas_tpu.matmul.arrays import BlockedArray
from shardwright.codegen.backends.pallas_tpu.matmul.blocks import (
    DIM_I,
    DIM_J,
    DIM_K,
    DIMS,
    FACTORS,
)
from shardwright.codegen.backends.pallas_tpu.matmul.kernel import BlockedProduct
from shardwright.codegen.text.python_text import formatted
from shardwright.ir.dtypes import itemsize


@dataclass(frozen=True)
class NamedValue:
    """A name and the expression of its value."""

    name: str
    value: str


@dataclass(frozen=True)
class Buffer:
    """A kernel's VMEM buffer. `shape`: (slots, rows, columns); `does`: its contents, for a
    comment."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    does: str

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * itemsize(self.dtype)

    @property
    def size(self) -> str:
        return f"{self.nbytes:,}"


@dataclass(frozen=True)
class BlockedOperand:
    """An operand of a kernel: `name` is "a" or "b"."""

    name: str
    product: BlockedProduct

    @property
    def array(self) -> BlockedArray:
        return self.product.arrays[self.name]

    @property
    def travels(self) -> bool:
        """Whether the operand's parts travel around rings."""
        return self.product.travels == self.name

    @property
    def slots(self) -> int:
        """The number of the operand's blocks that are in VMEM at a time."""
        product = self.product
        if not product.stays_in_vmem(self.name):
            return 2
        return math.prod(product.counts[f] for f in DIMS[self.name])

    @property
    def slot(self) -> str:
        """The VMEM slot of a block, as an expression."""
        product = self.product
        if not product.stays_in_vmem(self.name):
            return "rem(block.number, 2)"
        found = ""
        for f in DIMS[self.name]:
            if (count := product.counts[f]) > 1:
                own = f"block.{FACTORS[f]}"
                found = f"({found}) * {count} + {own}" if found else own
        return found or "np.int32(0)"

    @property
    def first(self) -> str:
        """The condition for loading a block that then stays in VMEM, as an expression, or "" if
        blocks are loaded for every product."""
        product = self.product
        if not product.stays_in_vmem(self.name):
            return ""
        other = DIM_I if self.name == "b" else DIM_K
        terms = ["block.step == 0"]
        terms += ["block.way == 0"] if product.ways > 1 else []
        terms += [f"block.{FACTORS[other]} == 0"] if product.counts[other] > 1 else []
        return " & ".join(f"({term})" for term in terms) if len(terms) > 1 else terms[0]

    @property
    def place(self) -> str:
        """The part of its VMEM slot that a block fills, as an expression."""
        return formatted(self.array.place(f"{self.name}_blocks", "slot"), 15, 8)

    @property
    def read(self) -> str:
        """Where a block is in the operand, as an expression."""
        return self._source(self.array.block(self.name))

    @property
    def come(self) -> str:
        """Where a block is in an arrived part, as an expression."""
        return self._source(self.product.come.block("inbox", "block.step - 1"))

    def _source(self, text: str) -> str:
        deeper = 4 * self.travels
        return formatted(text, 15 + deeper, 8 + deeper)

    @property
    def axis(self) -> int:
        """The axis of a block that runs along j."""
        return DIMS[self.name].index(DIM_J) - 1

    @property
    def block_bytes(self) -> str:
        return bytes_of_block(self.array, self.product, self.name)


def bytes_of_block(array: BlockedArray, product: BlockedProduct, side: str) -> str:
    """Return the size of a block in bytes, for a comment."""
    _, *dims = DIMS[side]
    nbytes = math.prod(product.blocks[f] for f in dims) * array.itemsize
    is_cut = any(array.block_size(f) != str(product.blocks[f]) for f in dims)
    return f"{nbytes:,} bytes" + (", fewer at the ends" if is_cut else "")
