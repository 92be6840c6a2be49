"""Matmuls of tensors as matmuls of matrices. Dimensions with the same role are merged. A tensor is
transposed if dimensions with the same role are not adjacent, or if columns precede rows.

The order of rows does not affect a product if all its tensors agree on it. A gathered or scattered
tensor consists of the devices' parts in sequence, so another tensor may have to be transposed so
that its corresponding parts come first.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shardwright.codegen.ops.layout import LocalLayout, Names
from shardwright.ir.errors import InputError
from shardwright.ir.matmul import SIDES, Side
from shardwright.ir.program import Op

Group = tuple[int, ...]
Groups = tuple[Group, Group, Group]
"""The dimensions of a tensor by role: batch dimensions, rows of a matrix, and columns."""
Ends = tuple[Side, int]
"""A tensor of a product, and the index of a group: 1 for its rows or 2 for its columns."""

MATRIX: Groups = ((), (0,), (1,))
"""The groups of a tensor that is a matrix already."""

PARTNERS: dict[Ends, Ends] = {
    ("lhs", 1): ("out", 1),
    ("lhs", 2): ("rhs", 1),
    ("rhs", 1): ("lhs", 2),
    ("rhs", 2): ("out", 2),
    ("out", 1): ("lhs", 1),
    ("out", 2): ("rhs", 2),
}
"""For the rows or columns of a tensor, the equal rows or columns of another tensor of the
product."""

OTHERS: dict[Side, Side] = {"lhs": "rhs", "rhs": "lhs", "out": "out"}
"""For each tensor of a product, its role in the product of the transposed operands."""


@dataclass(frozen=True)
class Turn:
    """A transposition of the tensor `side`: the `parts` of dimension `dim` move in front of
    dimension `first`. Dimensions are those of the tensor in matrix order."""

    side: Side
    first: int
    dim: int
    parts: int

    @property
    def ends(self) -> tuple[int, int]:
        """The index of the parts, as a separate dimension, before and after the transposition."""
        return self.dim, self.first

    def apart(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return a shape with the parts as a separate dimension, before the transposition."""
        own = shape[self.dim] // self.parts
        return (*shape[: self.dim], self.parts, own, *shape[self.dim + 1 :])

    def turned(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return a shape with the parts as a separate dimension, after the transposition."""
        rest = list(self.apart(shape))
        return (*rest[: self.first], rest.pop(self.dim), *rest[self.first :])


@dataclass(frozen=True)
class AsMatrices:
    """Tensors of one or several products of matrices: the role of each dimension of each tensor.

    `swapped`: whether lhs and rhs of the op are swapped and the product is transposed.
    """

    lhs: Groups = MATRIX
    rhs: Groups = MATRIX
    out: Groups = MATRIX
    swapped: bool = False

    @staticmethod
    def every(op: Op, ranks: tuple[int, int]) -> Iterator[AsMatrices]:
        """Yield the ways to multiply the operands of a dot_general, which have these ranks, as
        matrices. Yield nothing if an operand is a vector."""
        batch = tuple(op.integers(f"batch_{side}") for side in SIDES[:2])
        pairs = [*zip(*(op.integers(f"contract_{side}") for side in SIDES[:2]), strict=True)]
        free = [
            tuple(d for d in range(rank) if d not in batch[n] and all(d != p[n] for p in pairs))
            for n, rank in enumerate(ranks)
        ]
        if not (pairs and all(free)):
            return
        ends = len(batch[0]), len(batch[0]) + len(free[0])
        numbers, rows = tuple(range(ends[0])), tuple(range(*ends))
        columns = tuple(range(ends[1], ends[1] + len(free[1])))
        for order in dict.fromkeys(tuple(sorted(pairs, key=lambda p: p[n])) for n in range(2)):
            left, right = (tuple(pair[n] for pair in order) for n in range(2))
            lhs, rhs = (batch[0], free[0], left), (batch[1], right, free[1])
            plain = AsMatrices(lhs, rhs, (numbers, rows, columns))
            yield from (plain, plain.transposed)

    @property
    def transposed(self) -> AsMatrices:
        """The product of the transposed operands, in the opposite order."""
        lhs, rhs, out = (
            (groups[0], groups[2], groups[1]) for groups in (self.rhs, self.lhs, self.out)
        )
        return AsMatrices(lhs, rhs, out, not self.swapped)

    def side(self, side: Side) -> Side:
        """Return the tensor of the op that corresponds to a tensor of the product, and vice
        versa."""
        return OTHERS[side] if self.swapped else side

    def groups(self, side: Side) -> Groups:
        """Return the batch dimensions, rows, and columns of a tensor."""
        return {"lhs": self.lhs, "rhs": self.rhs, "out": self.out}[side]

    def order(self, side: Side) -> Group:
        """Return the dimensions of a tensor in matrix order."""
        return tuple(itertools.chain.from_iterable(self.groups(side)))

    def is_in_order(self, side: Side) -> bool:
        return self.order(side) == tuple(range(len(self.order(side))))

    def shape(self, side: Side, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of the matrices of a tensor of this shape."""
        groups = self.groups(side)
        return tuple(math.prod(shape[d] for d in own) for own in groups[not groups[0] :])

    def turn(self, side: Side, dim: int, parts: int, shape: Sequence[int]) -> Turn | None:
        """Return the transposition that is necessary to send parts of a dimension, or None if the
        parts are already in sequence. `shape`: the shape of the tensor with all parts."""
        groups = self.groups(side)
        end = next(n for n, own in enumerate(groups) if dim in own)
        at = groups[end].index(dim)
        if math.prod(shape[d] for d in groups[end][:at]) == 1:
            return None
        to, end = PARTNERS[side, end]
        first = sum(map(len, self.groups(to)[:end]))
        return Turn(to, first, first + at, parts)

    def sharding(self, side: Side, layout: LocalLayout, dim: int, axes: Names) -> str:
        """Format the sharding of a tensor's matrices as text. `axes`: the axes of the parts that
        are sent, which must come last among those of dimension `dim`, or () for tensors that are
        not sent.

        Raises InputError for partial operands, and if a part is not one block of a matrix.
        """
        if layout.partial and (layout.operator != "sum" or side != "out"):
            raise InputError(
                f"{self.side(side)} of a kernel's matmul must not be a partial {layout.operator}",
                argument="matmul",
                got=str(layout),
                expected="reduced operands; only the result may be a partial sum",
            )
        numbers, *_ = groups = self.groups(side)
        if axes and dim in numbers:
            raise InputError(
                "the travelling part is split along a batch dimension, so it holds whole products",
                argument="matmul",
            )
        texts = []
        for group in groups[not numbers :]:
            names = [name for d in group for name in layout.dims[d]]
            if axes and dim in group:
                if layout.dims[dim][-len(axes) :] != axes:
                    raise InputError(
                        "the travelling part is not one block of a matrix", argument="matmul"
                    )
                names = [name for name in names if name not in axes] + list(axes)
            texts.append("{" + ", ".join(f'"{name}"' for name in names) + "}")
        terms = ", ".join(f'"{name}"' for name in layout.partial)
        return f"[{', '.join(texts)}]" + (f", unreduced={{{terms}}}" if terms else "")


PLAIN = AsMatrices()
"""The product of two matrices."""
