"""Rewrite ops as simpler ones, with transpositions or changes of sign."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from shardwright.codegen.trace.params import Params, params_of
from shardwright.codegen.trace.stacks import OpBlock, added, stack, unstack
from shardwright.ir.errors import InputError
from shardwright.ir.program import Op


def reshape(block: OpBlock, equation: Any) -> Sequence[int]:
    """Add the ops of a reshape, which may first permute its operand's dimensions, and return its
    result."""
    (given,), (out,) = equation.invars, equation.outvars
    line, operand = block.tracer.lines.of(equation), block.read(given)
    order = equation.params["dimensions"]
    if order is not None and tuple(order) != tuple(range(len(order))):
        operand = _transposed(block, operand, given.aval, tuple(order), line)
    params: Params = (("dimensions", None), ("new_sizes", tuple(out.aval.shape)))
    return (added(block, "reshape", (operand,), out.aval, line, params),)


def top_k(block: OpBlock, equation: Any) -> Sequence[int]:
    """Add the ops of a top-k, and return its results. In a program, top-k is always along the last
    dimension, so any other dimension is first moved there."""
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


def subtracted(block: OpBlock, equation: Any) -> Sequence[int]:
    """Add the ops of a scatter that subtracts, as a scatter that adds the negated updates, and
    return its result."""
    line, (out,) = block.tracer.lines.of(equation), equation.outvars
    table, indices, updates = map(block.read, equation.invars)
    less = added(block, "neg", (updates,), equation.invars[2].aval, line, ())
    params = params_of("scatter-add", equation.params)
    return (added(block, "scatter-add", (table, indices, less), out.aval, line, params),)


def put(block: OpBlock, equation: Any) -> Sequence[int]:
    """Add a scatter that sets elements, and return its result.

    Raise InputError if the scatter applies a function to existing elements.
    """
    line, (out,) = block.tracer.lines.of(equation), equation.outvars
    if equation.params["update_jaxpr"] is not None:
        raise InputError(
            "a scatter must set, add, multiply, or take the maximum or minimum",
            argument="fn",
            got=f"a scatter that applies a function, x.at[i].apply(f){f', {line}' if line else ''}",
            expected="x.at[i].set(f(x[i]))",
        )
    operands = tuple(map(block.read, equation.invars))
    params = params_of("scatter", equation.params)
    return (added(block, "scatter", operands, out.aval, line, params),)


def summed(block: OpBlock, equation: Any) -> Sequence[int]:
    """Add the ops of a `psum`, `pmax` or `pmin`, and return its results.

    Under `vmap`, a mapped axis is a dimension of the operands. It is reduced before the collective
    over the other axes.
    """
    kind, line = equation.primitive.name, block.tracer.lines.of(equation)
    axes = equation.params["axes"]
    dims = tuple(axis for axis in axes if isinstance(axis, int))
    names = tuple(axis for axis in axes if not isinstance(axis, int))
    params = params_of(kind, {**equation.params, "axes": names})
    results = []
    for given, out in zip(equation.invars, equation.outvars, strict=True):
        value = block.read(given)
        if dims:
            value = added(block, REDUCED[kind], (value,), out.aval, line, (("axes", dims),))
        if names:
            value = added(block, kind, (value,), out.aval, line, params)
        results.append(value)
    return results


def _turned(aval: Any, order: Sequence[int]) -> Any:
    return jax.ShapeDtypeStruct(tuple(aval.shape[dim] for dim in order), aval.dtype)


def _transposed(block: OpBlock, operand: int, aval: Any, order: Sequence[int], line: Any) -> int:
    params: Params = (("permutation", tuple(order)),)
    return added(block, "transpose", (operand,), _turned(aval, order), line, params)


REDUCED = {
    "psum": "reduce_sum",
    "psum_invariant": "reduce_sum",
    "pmax": "reduce_max",
    "pmin": "reduce_min",
}
"""The reduction that equals each collective over an axis that is a dimension."""

REWRITTEN: dict[str, Callable[[OpBlock, Any], Sequence[int]]] = {
    "reshape": reshape,
    **dict.fromkeys(REDUCED, summed),
    "scatter": put,
    "scatter-sub": subtracted,
    "stack": stack,
    "top_k": top_k,
    "unstack": unstack,
}
"""Primitives of jaxprs that are rewritten as other ops."""
