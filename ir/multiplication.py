"""The split of a matmul over devices: the axes that split each factor during the product.

During the product, each dimension of an operand is split along the axes of its factor. The result
is split along the axes of the batch dimensions, i and k; along the axes of j, devices have partial
sums of it. An operand may stay unreduced along axes on which the other operand is replicated: with
A = A_0 + A_1, A_0 B and A_1 B are partial sums of the result, because the product is linear.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from shardwright.ir.axes import AxisRef
from shardwright.ir.matmul import SIDES, Matmul, Side
from shardwright.ir.reshard import Reshard
from shardwright.ir.sharding import DimSharding, Sharding

Refs = tuple[AxisRef, ...]


@dataclass(frozen=True)
class Multiplication:
    """The split of a matmul during the product.

    `axes`: the axes that split each factor, major to minor. `terms`: two tuples, the axes along
    which lhs and rhs stay unreduced. No axis may occur twice. `shardings` raises InputError if
    sub-axes of one axis cannot coexist.
    """

    matmul: Matmul
    axes: tuple[Refs, ...]
    terms: tuple[Refs, Refs] = ((), ())

    @cached_property
    def shardings(self) -> dict[Side, Sharding]:
        """The sharding of each operand and of the result during the product. The result is
        unreduced along the axes of j and along all `terms`."""
        j = self.matmul.batch + 1
        unreduced = {
            "lhs": self.terms[0],
            "rhs": self.terms[1],
            "out": (*self.axes[j], *self.terms[0], *self.terms[1]),
        }
        return {side: self._sharding(side, unreduced[side]) for side in SIDES}

    def _sharding(self, side: Side, unreduced: Refs) -> Sharding:
        dims = (DimSharding(self.axes[factor]) for factor in self.matmul.factors(side))
        return Sharding(self.matmul.mesh, tuple(dims), (), unreduced)

    def movement(self, side: Side) -> Reshard:
        """Return the reshard that moves an operand before the product or the result after it."""
        ends = self.matmul.sharding(side), self.shardings[side]
        before, after = ends if side != "out" else ends[::-1]
        return Reshard(self.matmul.shape(side), self.matmul.dtype_of(side), before, after)

    @cached_property
    def local_extents(self) -> tuple[int, ...]:
        """The extent of each factor in the largest shard."""
        size = self.matmul.mesh.full_size
        parts = (math.prod(map(size, refs)) for refs in self.axes)
        return tuple(
            -(-extent // count) for extent, count in zip(self.matmul.extents, parts, strict=True)
        )

    @property
    def flops(self) -> int:
        """The number of multiplications and additions on the busiest device."""
        return 2 * math.prod(self.local_extents)

    def local_shape(self, side: Side) -> tuple[int, ...]:
        """Return the shape of the largest shard of an operand or of the result during the
        product."""
        return tuple(self.local_extents[factor] for factor in self.matmul.factors(side))
