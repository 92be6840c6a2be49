"""Partial sums in a matmul: the one that a device has, and those that it adds, by number.

Partial sums of an operand are numbered first by the axes that stay unreduced, so that the ones that
a device adds before it multiplies are neighbours. Products, as partial sums of the result, are
numbered in the same way. Along axes that are unreduced only in the result, the device of coordinate
0 adds all partial sums and the others add none.
"""

from __future__ import annotations

import math

from shardwright.ir.algebra.index import Number, Value, minimum
from shardwright.ir.layout import Layout, merge_digits, read_digits
from shardwright.ir.matmul import Side
from shardwright.ir.multiplication import Multiplication, Refs
from shardwright.ir.sharding import DimSharding, Sharding
from shardwright.ir.unreduced import Fate


def product_layout(product: Multiplication) -> Layout:
    """Return the split of each factor of a matmul during the product: batch, i, j and k."""
    dims = tuple(map(DimSharding, product.axes))
    sharding = Sharding(product.matmul.mesh, dims, (), ())
    return Layout.of(sharding, product.matmul.extents, "flat")


def fate_of(product: Multiplication, side: Side) -> Fate:
    """Return what becomes of the partial sums of an operand, or of the devices' products."""
    return product.movement(side).fate


def added(product: Multiplication, side: Side) -> int:
    """Return the largest number of partial sums that a device adds."""
    return math.prod(map(product.matmul.mesh.full_size, fate_of(product, side).reduced))


def terms_at(product: Multiplication, side: Side, position: Number) -> tuple[Value, ...]:
    """Return the number of a device's partial sum, and the range of those that it adds."""
    fate, count = fate_of(product, side), added(product, side)
    mesh = product.matmul.mesh

    def number(*refs: Refs) -> Number:
        digits = tuple(mesh.digit(ref) for each in refs for ref in each)
        return read_digits(merge_digits(digits), position)

    own, low = number(fate.kept, fate.reduced), number(fate.kept) * count
    return own, low, low + count * (1 - minimum(number(fate.new), 1))
