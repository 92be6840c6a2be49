"""Terms of sums in a matmul: which one a device has, and which it adds, as index functions.

Terms of an operand are numbered so that those a device adds before it multiplies are neighbours:
by the axes that stay unreduced first. So are products as terms of the result. Along axes that are
unreduced in the result alone the device of coordinate 0 adds all of them, and others add none.
"""

from __future__ import annotations

import math

from shardwright.codegen.emit.index_functions import IndexFunction, position_function
from shardwright.ir.algebra.index import Number, Value, minimum
from shardwright.ir.layout import merge_digits, read_digits
from shardwright.ir.matmul import SIDES, Matmul, Side
from shardwright.ir.multiplication import Multiplication, Refs
from shardwright.ir.unreduced import Fate


def has_terms(matmul: Matmul) -> bool:
    """Return whether an operand is unreduced, or the result."""
    return any(matmul.sharding(side).unreduced for side in SIDES)


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


def terms_function(product: Multiplication, side: Side) -> IndexFunction:
    """Return `terms_at` as a function that modules have."""
    mine = "Which term of the result a product is" if side == "out" else f"The term of {side} held"
    doc = f"{mine}, and the range (low, high) of those added, at a position."
    mesh = product.matmul.mesh
    return position_function(
        f"{side}_terms", mesh, doc, lambda position: terms_at(product, side, position)
    )
