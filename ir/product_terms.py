"""Terms of sums in a matmul: which one a device has, and which it adds.

Terms of an operand are numbered so that those a device adds before it multiplies are neighbours:
by the axes that stay unreduced first. So are products as terms of the result. Along axes that are
unreduced in the result alone the device of coordinate 0 adds all of them, and others add none.
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
    """Return how the factors of a matmul are split while devices multiply: batch, i, j and k."""
    dims = tuple(map(DimSharding, product.axes))
    sharding = Sharding(product.matmul.mesh, dims, (), ())
    return Layout.of(sharding, product.matmul.extents, "flat")


def fate_of(product: Multiplication, side: Side) -> Fate:
    """Return what becomes of the terms of an operand, or of devices' products."""
    return product.movement(side).fate


def added(product: Multiplication, side: Side) -> int:
    """Return how many terms a device adds at most."""
    return math.prod(map(product.matmul.mesh.full_size, fate_of(product, side).reduced))


def terms_at(product: Multiplication, side: Side, position: Number) -> tuple[Value, ...]:
    """Return which term a device has, and the range of those that it adds."""
    fate, count = fate_of(product, side), added(product, side)
    mesh = product.matmul.mesh

    def number(*refs: Refs) -> Number:
        digits = tuple(mesh.digit(ref) for each in refs for ref in each)
        return read_digits(merge_digits(digits), position)

    own, low = number(fate.kept, fate.reduced), number(fate.kept) * count
    return own, low, low + count * (1 - minimum(number(fate.new), 1))
