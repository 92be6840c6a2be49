"""Matmuls of tensors as matmuls of matrices: dimensions that lie side by side are one.

In which order rows stand does not matter to a product, as long as its tensors agree. What is
gathered or scattered has the parts of devices one after another, so that another tensor may have to
be turned: parts of its dimension before the dimensions that stand before it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from shardwright.codegen.partition.local.layout import LocalLayout, Names
from shardwright.ir.errors import InputError
from shardwright.ir.matmul import Side
from shardwright.ir.program import Op

Group = tuple[int, ...]
Ends = tuple[Side, int]
"""A tensor, and whether its rows (0) or its columns (1)."""

MATRIX: tuple[Group, Group] = ((0,), (1,))
"""The rows and columns of what is a matrix already."""

PARTNERS: dict[Ends, Ends] = {
    ("lhs", 0): ("out", 0),
    ("lhs", 1): ("rhs", 0),
    ("rhs", 0): ("lhs", 1),
    ("rhs", 1): ("out", 1),
    ("out", 0): ("lhs", 0),
    ("out", 1): ("rhs", 1),
}
"""Which dimensions of a product are the same."""


@dataclass(frozen=True)
class Turn:
    """The tensor whose `parts` of dimension `dim` come before dimension `first`."""

    side: Side
    first: int
    dim: int
    parts: int

    @property
    def ends(self) -> tuple[int, int]:
        """Where the parts are before they are moved, as a dimension of their own, and after."""
        return self.dim, self.first

    def apart(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return a shape in which the parts are a dimension of their own, where they are in it."""
        own = shape[self.dim] // self.parts
        return (*shape[: self.dim], self.parts, own, *shape[self.dim + 1 :])

    def turned(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return a shape in which they are, before the others."""
        rest = list(self.apart(shape))
        return (*rest[: self.first], rest.pop(self.dim), *rest[self.first :])


@dataclass(frozen=True)
class AsMatrices:
    """A product of matrices: for each tensor, which dimensions are the rows of its matrix, and
    which are the columns."""

    lhs: tuple[Group, Group] = MATRIX
    rhs: tuple[Group, Group] = MATRIX
    out: tuple[Group, Group] = MATRIX

    @staticmethod
    def of(op: Op, ranks: tuple[int, int, int]) -> AsMatrices | None:
        """Return the product of a dot_general; None where an operand would have to be transposed,
        or there are several products."""
        left, right, out = ranks
        ends = op.integers("contract_lhs"), op.integers("contract_rhs")
        pairs, count = sorted(zip(*ends, strict=True)), len(ends[0])
        rows, columns = left - count, right - count
        fits = pairs == [(rows + n, n) for n in range(count)]
        if op.integers("batch_lhs") or not fits or not (count and rows and columns):
            return None
        lhs, rhs, made = (
            (tuple(range(cut)), tuple(range(cut, rank)))
            for cut, rank in ((rows, left), (count, right), (rows, out))
        )
        return AsMatrices(lhs, rhs, made)

    def groups(self, side: Side) -> tuple[Group, Group]:
        """Return the dimensions of a tensor that are its rows, and its columns."""
        return {"lhs": self.lhs, "rhs": self.rhs, "out": self.out}[side]

    def shape(self, side: Side, shape: Sequence[int]) -> tuple[int, int]:
        """Return the shape of the matrix of a tensor of this shape."""
        rows, columns = (math.prod(shape[d] for d in group) for group in self.groups(side))
        return rows, columns

    def turn(self, side: Side, dim: int, parts: int, shape: Sequence[int]) -> Turn | None:
        """Return which tensor is turned where parts of a dimension travel; `shape`: of the tensor
        with all of them. None where nothing stands before them."""
        which, group = self._group(side, dim)
        if math.prod(shape[d] for d in group if d < dim) == 1:
            return None
        to, end = PARTNERS[side, which]
        dims = self.groups(to)[end]
        return Turn(to, dims[0], dims[group.index(dim)], parts)

    def sharding(self, side: Side, layout: LocalLayout, dim: int, axes: Names) -> str:
        """Return the sharding of the matrix of a tensor; `axes`, of what travels, split dimension
        `dim`, and are the last of its group's: in what is whole along them, there are none.

        Raises InputError for operands that are terms, and where a part is not one block.
        """
        if layout.partial and (layout.operator != "sum" or side != "out"):
            raise InputError("an operand of it is terms", argument="matmul")
        texts = []
        for group in self.groups(side):
            names = [name for d in group for name in layout.dims[d]]
            if axes and dim in group:
                if layout.dims[dim][-len(axes) :] != axes:
                    raise InputError("what travels is not one block", argument="matmul")
                names = [name for name in names if name not in axes] + list(axes)
            texts.append("{" + ", ".join(f'"{name}"' for name in names) + "}")
        terms = ", ".join(f'"{name}"' for name in layout.partial)
        return f"[{', '.join(texts)}]" + (f", unreduced={{{terms}}}" if terms else "")

    def _group(self, side: Side, dim: int) -> tuple[int, Group]:
        rows, columns = self.groups(side)
        return (0, rows) if dim in rows else (1, columns)


PLAIN = AsMatrices()
"""That of two matrices."""
