"""Ops of which a parameter says that a tensor is turned before: as a transpose and the op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from shardwright.codegen.trace.params import Params
from shardwright.codegen.trace.stacks import OpBlock, added, stack, unstack
from shardwright.ir.program import Op


def reshape(block: OpBlock, equation: Any) -> Sequence[int]:
    """Add the ops of a reshape, which may read the dimensions of its operand in another order;
    return its result."""
    (given,), (out,) = equation.invars, equation.outvars
    line, operand = block.tracer.lines.of(equation), block.read(given)
    order = equation.params["dimensions"]
    if order is not None and tuple(order) != tuple(range(len(order))):
        operand = _transposed(block, operand, given.aval, tuple(order), line)
    params: Params = (("dimensions", None), ("new_sizes", tuple(out.aval.shape)))
    return (added(block, "reshape", (operand,), out.aval, line, params),)


def top_k(block: OpBlock, equation: Any) -> Sequence[int]:
    """Add the ops of a top-k, which is along the last dimension in a program; return its
    results."""
    (given,), params = equation.invars, equation.params
    line, operand = block.tracer.lines.of(equation), block.read(given)
    rank = len(given.aval.shape)
    axis = params["axis"] % rank
    order = (*(dim for dim in range(rank) if dim != axis), axis)
    turned = order != tuple(range(rank))
    if turned:
        operand = _transposed(block, operand, given.aval, order, line)
    avals = [_turned(out.aval, order) for out in equation.outvars]
    found = tuple(block.tracer.value("top_k", aval, line) for aval in avals)
    own: Params = (("axis", rank - 1), ("k", int(params["k"])))
    block.ops.append(Op("top_k", (operand,), found, own, line=line))
    if not turned:
        return found
    back = tuple(order.index(dim) for dim in range(rank))
    pairs = zip(found, avals, strict=True)
    return tuple(_transposed(block, value, aval, back, line) for value, aval in pairs)


def _turned(aval: Any, order: Sequence[int]) -> Any:
    """Return the type of a tensor whose dimensions are in another order."""
    return jax.ShapeDtypeStruct(tuple(aval.shape[dim] for dim in order), aval.dtype)


def _transposed(block: OpBlock, operand: int, aval: Any, order: Sequence[int], line: Any) -> int:
    params: Params = (("permutation", tuple(order)),)
    return added(block, "transpose", (operand,), _turned(aval, order), line, params)


REWRITTEN: dict[str, Callable[[OpBlock, Any], Sequence[int]]] = {
    "reshape": reshape,
    "stack": stack,
    "top_k": top_k,
    "unstack": unstack,
}
"""What becomes other ops, by the kind that jaxprs have."""
