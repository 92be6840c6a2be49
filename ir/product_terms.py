"""Number the partial sums in a matmul, to state which of them each device holds and adds.

The axes that stay unreduced are the major digits of the number of an operand's partial sum, so a
device adds a range of numbers before it multiplies. The products of the devices are partial sums of
the result, which are numbered in the same way. Along axes that are unreduced only in the result,
the device of coordinate 0 adds all partial sums, and the other devices add none.
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
    """Return the layout of a matmul during the product, with one dimension per factor: the batch
    dimensions, i, j and k."""
    dims = tuple(map(DimSharding, product.axes))
    sharding = Sharding(product.matmul.mesh, dims, (), ())
    return Layout.of(sharding, product.matmul.extents, "flat")


def fate_of(product: Multiplication, side: Side) -> Fate:
    """Return the fate of the unreduced axes in the movement of an operand or of the result."""
    return product.movement(side).fate


def added(product: Multiplication, side: Side) -> int:
    """Return the number of partial sums that a device adds to get one value."""
    return math.prod(map(product.matmul.mesh.full_size, fate_of(product, side).reduced))


def terms_at(product: Multiplication, side: Side, position: Number) -> tuple[Value, ...]:
    """Return the number of the partial sum at a mesh position, and the ends of the range of
    numbers that its device adds."""
    fate, count = fate_of(product, side), added(product, side)
    mesh = product.matmul.mesh

    def number(*refs: Refs) -> Number:
        digits = tuple(mesh.digit(ref) for each in refs for ref in each)
        return read_digits(merge_digits(digits), position)

    own, low = number(fate.kept, fate.reduced), number(fate.kept) * count
    return own, low, low + count * (1 - minimum(number(fate.new), 1))
