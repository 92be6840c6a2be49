"""The check that the index arithmetic of kernels stays within 32 bits."""

from __future__ import annotations

from collections.abc import Iterator

import sympy

from shardwright.codegen.text.index_functions import index_functions
from shardwright.ir.algebra.bounds import bounds
from shardwright.ir.algebra.index import CeilDiv
from shardwright.ir.errors import InputError
from shardwright.ir.exchange import Exchange
from shardwright.ir.plan import Plan

MAX_INDEX = 2**31 - 1
# The most elements by which a kernel rounds a range up to blocks, chunks or memory tiles.
ROUNDING = 2**20


def refuse_wide(plan: Plan, exchange: Exchange, backend: str) -> None:
    """Raise InputError if an index of a kernel, or an intermediate value, may exceed 32 bits."""
    widest = exchange.once(widest_index)
    if widest <= MAX_INDEX - ROUNDING:
        return
    raise InputError(
        f"padded shards have indices up to {widest}, which {backend} cannot compute in 32 bits",
        argument="shape",
        got="x".join(map(str, plan.reshard.shape)),
        expected=f"padded shards that end at or below {MAX_INDEX - ROUNDING}",
    )


def widest_index(exchange: Exchange) -> int:
    """Return an upper bound on all values that the index functions compute.

    The algebra finds no bound for a few values of nested splits. They are positions in the padded
    tensor, so its extents bound them.
    """
    padded = [dim.parts * dim.size for dims in exchange.dims for dim in (dims.source, dims.target)]
    values = (
        value
        for function in exchange.once(index_functions)
        for expr in function.values
        for value in _computed(sympy.sympify(expr))
    )
    return max(*padded, *values)


def _computed(expr: sympy.Expr) -> Iterator[int]:
    """Yield upper bounds on an expression and on all its subexpressions."""
    for part in sympy.preorder_traversal(expr):
        if part.is_Add:
            # Subtracted terms come last, so an intermediate sum may reach the sum of all added
            # terms.
            yield sum(max(_high(term), 0) for term in part.args)
        elif isinstance(part, CeilDiv):
            yield _high(part.args[0]) + _high(part.args[1]) - 1
        else:
            yield _high(part)


def _high(expr: sympy.Expr) -> int:
    ends = bounds(expr)
    return int(ends[1]) if ends is not None and ends[1].is_Integer else 0
