"""Trace stacking and unstacking the way StableHLO expresses them: with broadcasts and a
concatenation, and with slices and reshapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import jax

from shardwright.codegen.trace.params import Params
from shardwright.ir.program import Line, Op


class OpBlock(Protocol):
    """The block to which ops are added."""

    tracer: Any
    ops: list[Op]

    def read(self, atom: Any) -> int:
        """Return the value of a jaxpr's variable or literal."""


def stack(block: OpBlock, equation: Any) -> Sequence[int]:
    """Add the ops of a stack, and return its result."""
    (out,), axis = equation.outvars, equation.params["axis"]
    line = block.tracer.lines.of(equation)
    shape = (*out.aval.shape[:axis], 1, *out.aval.shape[axis + 1 :])
    one = jax.ShapeDtypeStruct(shape, out.aval.dtype)
    dims = tuple(dim for dim in range(len(shape)) if dim != axis)
    params = (("broadcast_dimensions", dims), ("shape", shape))
    wide = tuple(
        added(block, "broadcast_in_dim", (block.read(atom),), one, line, params)
        for atom in equation.invars
    )
    return (added(block, "concatenate", wide, out.aval, line, (("dimension", axis),)),)


def unstack(block: OpBlock, equation: Any) -> Sequence[int]:
    """Add the ops of an unstack, and return its results."""
    (given,), axis = equation.invars, equation.params["axis"]
    line, operand = block.tracer.lines.of(equation), block.read(given)
    extents, found = given.aval.shape, []
    for number, out in enumerate(equation.outvars):
        starts = tuple(number if dim == axis else 0 for dim in range(len(extents)))
        limits = tuple(number + 1 if d == axis else extent for d, extent in enumerate(extents))
        shape = tuple(1 if d == axis else extent for d, extent in enumerate(extents))
        aval = jax.ShapeDtypeStruct(shape, out.aval.dtype)
        params: Params = (("limit_indices", limits), ("start_indices", starts), ("strides", None))
        row = added(block, "slice", (operand,), aval, line, params)
        flat: Params = (("dimensions", None), ("new_sizes", tuple(out.aval.shape)))
        found.append(added(block, "reshape", (row,), out.aval, line, flat))
    return tuple(found)


def added(
    block: OpBlock,
    kind: str,
    operands: tuple[int, ...],
    aval: Any,
    line: Line | None,
    params: Params,
) -> int:
    result: int = block.tracer.value(kind, aval, line)
    block.ops.append(Op(kind, operands, (result,), params, line=line))
    return result
