"""The ops that run on padded ends, the value that padded rows must have for each of them, and their
parameters for padded shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from shardwright.codegen.ops.forms.shifts import padded_dims
from shardwright.codegen.ops.forms.windows import (
    fills,
    pairs_of,
    pooled_dims,
    slidings,
)
from shardwright.codegen.ops.table import ELEMENTWISE, kind_of
from shardwright.ir.program import Op, Param

Shape = tuple[int, ...]
Dims = frozenset[int]  # dimensions of a tensor
NONE: Dims = frozenset()
FLOATS = frozenset({"f16", "bf16", "f32", "f64"})
DTYPES = FLOATS | {"bool", *(f"{sign}{bits}" for sign in "iu" for bits in (8, 16, 32, 64))}
"""The dtypes that have a neutral element for every reduction."""

ZERO, ONE, LEAST, GREATEST = "zero", "one", "least", "greatest"
APART = frozenset(
    {
        *ELEMENTWISE,
        *("broadcast_in_dim", "concatenate", "constrain", "gather", "iota", "pad", "reshape"),
        *("rev", "scatter-add", "shift", "slice", "sort", "split", "squeeze", "transpose"),
    }
)
"""Kinds of ops that run on padded ends along dimensions in which they do not mix rows."""
MIXING: dict[str, str] = {
    **dict.fromkeys(("reduce_sum", "reduce_or", "reduce_xor", "dot_general"), ZERO),
    **dict.fromkeys(("conv_general_dilated", "reduce_window_sum", "cumsum"), ZERO),
    "select_and_scatter_add": ZERO,
    **dict.fromkeys(("reduce_prod", "cumprod"), ONE),
    **dict.fromkeys(("reduce_max", "reduce_window_max", "argmax", "cummax"), LEAST),
    **dict.fromkeys(("reduce_min", "reduce_window_min", "argmin", "cummin"), GREATEST),
    "reduce_and": GREATEST,
    "cumlogsumexp": LEAST,
}
"""Kinds of ops that combine several rows, each with the value of padded rows that leaves the
results unchanged."""
BILINEAR = frozenset({"dot_general", "conv_general_dilated"})
"""Kinds of ops in which the gradient of one operand is a product with the other operand, including
padded rows."""


FILLED = ("FILL_OR_DROP",)
"""Modes of gathers in which an index out of range reads no row."""


def neutral(kind: str, dtype: str) -> Param:
    """Return a value of padded rows that does not affect the results of an op of this kind.

    >>> neutral("reduce_max", "f32"), neutral("argmin", "u8"), neutral("reduce_and", "i32")
    (-inf, 255, -1)
    """
    name = MIXING[kind]
    if name in (ZERO, ONE):
        return int(name == ONE)
    if dtype in FLOATS:
        return -math.inf if name == LEAST else math.inf
    if dtype == "bool":
        return name == GREATEST
    if kind == "reduce_and" and dtype[0] == "i":
        return -1
    found = np.iinfo({"i": "int", "u": "uint"}[dtype[0]] + dtype[1:])
    return int(found.min if name == LEAST else found.max)


def neutral_of(op: Op, place: int, dtype: str) -> Param:
    """Return a value of padded rows in operand `place` that does not affect the results of an
    op."""
    if op.kind == "select_and_scatter_add" and place == 1:
        return neutral(f"reduce_{fills(op)}", dtype)
    return neutral(op.kind, dtype)


def moved_dims(op: Op, shapes: Sequence[Shape], extents: Mapping[int, int]) -> list[Dims]:
    """Return the dimensions along which the rows of each tensor of an op move: dimensions that a
    pad extends or crops, dimensions along which windows slide, and the dimension of a shift for
    tensors that are, once padded, as long as the result. `shapes`: the shapes of the tensors,
    operands first; `extents`: maps extents to padded extents."""
    found = [NONE] * len(shapes)
    if op.kind == "shift":
        (dim,) = op.integers("dimension")
        padded = [extents.get(shape[dim], shape[dim]) if shape else 0 for shape in shapes]
        found = [frozenset((dim,)) if own == padded[-1] else NONE for own in padded]
    elif op.kind == "pad":
        found[0] = found[-1] = frozenset(dim for dim, _ in padded_dims(op))
    elif op.kind == "select_and_scatter_add":
        found = [frozenset(pooled_dims(op, tuple(shapes)))] * len(shapes)
    elif op.kind == "conv_general_dilated" or op.kind.startswith("reduce_window"):
        each = slidings(op, tuple(shapes))
        found[0] = frozenset(sliding.dims[0] for sliding in each)
        found[-1] = frozenset(sliding.dims[2] for sliding in each)
        kernel = (sliding.dims[1] for sliding in each)
        found[1] |= frozenset(dim for dim in kernel if dim is not None)
    return found


def read_dims(op: Op, place: int) -> Dims:
    """Return the dimensions of operand `place` along which a pad takes rows from beyond the end, or
    a cumulative op accumulates rows."""
    if kind_of(op.kind).group == "cumulative":
        return frozenset(op.integers("axis"))
    if op.kind == "pad" and place == 0:
        return frozenset(dim for dim, (_, high, inner) in padded_dims(op) if high > 0 or inner)
    return NONE


def indexed_dims(op: Op) -> tuple[int, ...]:
    """Return the dimensions of the first operand of a gather or scatter to which indices refer, or
    () for other ops."""
    names = {"gather": "start_index_map", "scatter-add": "scatter_dims_to_operand_dims"}
    return op.integers(names[op.kind]) if op.kind in names else ()


def extended(op: Op, before: Sequence[Shape], after: Sequence[Shape]) -> Op | None:
    """Return an op with the parameters for tensors of other shapes, or None if no parameters
    express it. `before`, `after`: the shapes of its tensors, operands first."""
    changed: dict[str, Param] = {}
    match op.kind:
        case "broadcast_in_dim" | "iota":
            changed["shape"] = after[-1]
        case "reshape":
            changed["new_sizes"] = after[-1]
        case "slice" | "gather":
            name = "limit_indices" if op.kind == "slice" else "slice_sizes"
            triples = zip(op.integers(name), before[0], after[0], strict=True)
            changed[name] = tuple(new if own == old else own for own, old, new in triples)
        case "pad":
            config = [(0, 0, 0)] * len(after[0])
            for dim, (low, _, inner) in padded_dims(op):
                rows = low + after[0][dim] + max(after[0][dim] - 1, 0) * inner
                config[dim] = low, after[-1][dim] - rows, inner
            changed["padding_config"] = tuple(config)
        case "select_and_scatter_add":
            stride, padding = op.integers("window_strides"), pairs_of(op)
            for dim, (low, high) in enumerate(padding):
                windows, rows = (after[n][dim] - before[n][dim] for n in (0, 1))
                padding[dim] = low, high + windows * stride[dim] - rows
            if any(high < 0 for _, high in padding):
                return None
            changed["padding"] = tuple(padding)
        case kind if kind == "conv_general_dilated" or kind.startswith("reduce_window"):
            padding = _padding(op, before, after)
            if kind != "conv_general_dilated" and any(high < 0 for _, high in padding):
                return None
            changed["padding"] = tuple(padding)
    return with_params(op, changed)


def _padding(op: Op, before: Sequence[Shape], after: Sequence[Shape]) -> list[tuple[int, int]]:
    """Return the padding of windows: more after the end if the result or the kernel has more rows,
    less if the operand has more."""
    spec = op.integers("lhs_spec")[2:] if op.kind == "conv_general_dilated" else None
    padding = pairs_of(op)
    more = [
        [new - old for old, new in zip(*pair, strict=True)]
        for pair in zip(before, after, strict=True)
    ]
    for each in slidings(op, tuple(before)):
        left, right, to = each.dims
        place = left if spec is None else spec.index(left)
        rows = more[-1][to] * each.stride - more[0][left] * each.base
        rows += 0 if right is None else more[1][right] * each.dilation
        padding[place] = padding[place][0], padding[place][1] + rows
    return padding


def with_params(op: Op, changed: Mapping[str, Param]) -> Op:
    """Return an op with some parameters replaced."""
    return replace(op, params=tuple(sorted({**dict(op.params), **changed}.items())))
