"""The index functions of a module for the terms that each device has and adds."""

from __future__ import annotations

from shardwright.codegen.text.index_functions import IndexFunction, position_function
from shardwright.ir.matmul import SIDES, Matmul, Side
from shardwright.ir.multiplication import Multiplication
from shardwright.ir.product_terms import terms_at


def has_terms(matmul: Matmul) -> bool:
    """Return whether an operand or the result is unreduced."""
    return any(matmul.sharding(side).unreduced for side in SIDES)


def terms_function(product: Multiplication, side: Side) -> IndexFunction:
    """Return the module's index function `terms_at` for a side."""
    mine = "Which term of the result a product is" if side == "out" else f"The term of {side} held"
    doc = f"{mine}, and the range (low, high) of those added, at a position."
    mesh = product.matmul.mesh
    return position_function(
        f"{side}_terms", mesh, doc, lambda position: terms_at(product, side, position)
    )
