"""Ops that change the shape but not the elements: broadcasts, reshapes, transposes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from shardwright.codegen.ops.build import Builder, Shape, Shapes, factors_of
from shardwright.codegen.ops.elementwise import aligned_rule
from shardwright.codegen.ops.kind import OpKind
from shardwright.codegen.ops.literals import dtype_text, integers, listed
from shardwright.codegen.ops.reshapes import reshape_rule
from shardwright.codegen.ops.text import Expression, OpText
from shardwright.ir.program import Op, Param, Rule


def _bitcast_rule(op: Op, operands: Shapes, results: Shapes) -> Rule:
    """Return the rule of a bitcast. It is elementwise, but if the dtypes have different widths, the
    side with the narrower dtype has an additional last dimension."""
    build = Builder(operands, results)
    (source,), (target,) = operands, results
    for dim in range(min(len(source), len(target))):
        build.factor(source[dim], {0: dim, 1: dim})
    for dim in range(len(target), len(source)):
        build.factor(source[dim], {0: dim}, kind="need_replication")
    for dim in range(len(source), len(target)):
        build.factor(target[dim], {1: dim}, kind="need_replication")
    return build.rule()


def _broadcast_rule(op: Op, operands: Shapes, results: Shapes) -> Rule:
    build = Builder(operands, results)
    source, (target,) = operands[0], results
    place = {to: dim for dim, to in enumerate(op.integers("broadcast_dimensions"))}
    for to, extent in enumerate(target):
        dim = place.get(to)
        same = dim is not None and source[dim] == extent
        if dim is not None and not same:
            build.factor(source[dim], {0: dim})
        build.factor(extent, {0: dim, len(operands): to} if same else {len(operands): to})
    return build.rule()


def _tile_rule(op: Op, operands: Shapes, results: Shapes) -> Rule:
    """Return the rule of a tile op, which concatenates copies of a tensor. In each dimension, the
    index of the copy is the major factor."""
    build = Builder(operands, results)
    for dim, count in enumerate(op.integers("reps")):
        build.factor(count, {1: dim})
        build.factor(operands[0][dim], {0: dim, 1: dim})
    return build.rule()


def _transpose_rule(op: Op, operands: Shapes, results: Shapes) -> Rule:
    build = Builder(operands, results)
    for to, dim in enumerate(op.integers("permutation")):
        build.factor(results[0][to], {0: dim, 1: to})
    return build.rule()


def _reshape_rule(op: Op, operands: Shapes, results: Shapes) -> Rule:
    return reshape_rule(operands[0], results[0])


def _broadcast(text: OpText) -> Expression:
    if text.shapes[0] and text.shape == expanded_shape(text):
        return expanded(text)
    return "jnp.broadcast_to", [expanded(text), integers(text.shape)]


def expanded(text: OpText) -> str:
    """Return the operand of a broadcast, extended to the rank of the result. An operand of rank 0
    is unchanged."""
    dims, rank = text.op.integers("broadcast_dimensions"), len(text.shape)
    if len(dims) in (0, rank):
        return text.given[0]
    return f"{text.given[0]}[{_index(dims, rank)}]"


def _index(dims: Sequence[int], rank: int) -> str:
    return ", ".join(":" if dim in dims else "None" for dim in range(rank))


def expanded_shape(text: OpText) -> Shape:
    """Return the shape of a broadcast's operand, extended to the rank of the result."""
    place = {to: dim for dim, to in enumerate(text.op.integers("broadcast_dimensions"))}
    return tuple(text.shapes[0][place[to]] if to in place else 1 for to in range(len(text.shape)))


def _tile(text: OpText) -> Expression:
    pairs = zip(text.shape, text.shapes[0], strict=True)
    return "jnp.tile", [text.given[0], integers(tuple(made // max(own, 1) for made, own in pairs))]


def reshaped(text: OpText) -> Expression:
    """Return a reshape. If it only adds dimensions of size 1, write it as an index such as `x[:,
    None]`."""
    left = list(text.shapes[0])
    kept = [bool(left) and left[0] == extent and left.pop(0) == extent for extent in text.shape]
    is_added = all(keep or n == 1 for keep, n in zip(kept, text.shape, strict=True))
    if left or not any(kept) or not is_added:
        return f"{text.given[0]}.reshape({integers(text.shape)})"
    return f"{text.given[0]}[{', '.join(':' if keep else 'None' for keep in kept)}]"


def _transpose(text: OpText) -> Expression:
    order = text.op.integers("permutation")
    if order == (1, 0):
        return f"{text.given[0]}.T"
    return f"{text.given[0]}.transpose({integers(order)})"


def _iota(text: OpText) -> Expression:
    (dim,) = text.op.integers("dimension")
    shape = integers(text.shape)
    whole = f"lax.broadcasted_iota({dtype_text(text.dtype)}, {shape}, {dim})"
    if len(text.shape) == 1:
        whole = f"jnp.arange({text.shape[0]}, dtype={dtype_text(text.dtype)})"
    names = text.layout.dims[dim]
    if not names:
        return whole
    quoted = [f'"{name}"' for name in names]
    axes = quoted[0] if len(quoted) == 1 else f"({', '.join(quoted)})"
    start = f"lax.axis_index({axes}).astype({dtype_text(text.dtype)}) * {text.shape[dim]}"
    return f"{whole} + {start}"


def _barrier(text: OpText) -> Expression:
    one = len(text.given) == 1
    return "lax.optimization_barrier", [text.given[0] if one else listed(text.given)]


def _bitcast(text: OpText) -> Expression:
    return "lax.bitcast_convert_type", [*text.given, dtype_text(text.dtype)]


def _one_side(op: Op, rule: Rule) -> Iterator[int]:
    """Yield the factors that only one side of a reshape has."""
    yield from factors_of(rule.operands[0]) ^ factors_of(rule.results[0])


def _spread(op: Op, given: Sequence[Any], shape: Shape) -> Any:
    along = [1] * len(shape)
    for dim, place in enumerate(op.integers("broadcast_dimensions")):
        along[place] = np.shape(given[0])[dim]
    return np.broadcast_to(np.reshape(given[0], along), shape)


def _turned(op: Op, given: Sequence[Any], shape: Shape) -> Any:
    return np.transpose(given[0], op.integers("permutation"))


def _counted(op: Op, given: Sequence[Any], shape: Shape) -> Any:
    (dim,) = op.integers("dimension")
    along = [-1 if d == dim else 1 for d in range(len(shape))]
    return np.broadcast_to(np.arange(shape[dim]).reshape(along), shape)


def _has_shape(text: OpText) -> bool:
    return text.shapes[0] == text.shape


def _has_size(text: OpText) -> bool:
    return math.prod(text.shapes[0]) == math.prod(text.shape)


def _to_shape(op: Op, before: Sequence[Shape], after: Sequence[Shape]) -> dict[str, Param]:
    return {"shape": after[-1]}


def _to_sizes(op: Op, before: Sequence[Shape], after: Sequence[Shape]) -> dict[str, Param]:
    return {"new_sizes": after[-1]}


VIEW: dict[str, Any] = {"group": "view", "terms": "first", "is_apart": True, "keeps": True}
RESHAPED: dict[str, Any] = {
    **VIEW,
    "passes": True,
    "held": _one_side,
    "same": _has_shape,
    "reshapes": lambda text: True,
    "evaluate": lambda op, given, shape: np.reshape(given[0], shape),
}
KINDS = (
    OpKind("constrain", aligned_rule, passes=True, is_apart=True),
    OpKind("optimization_barrier", aligned_rule, _barrier),
    OpKind("bitcast_convert_type", _bitcast_rule, _bitcast),
    OpKind(
        "broadcast_in_dim",
        _broadcast_rule,
        _broadcast,
        stem="broadcast",
        extend=_to_shape,
        same=_has_shape,
        reshapes=_has_size,
        evaluate=_spread,
        **VIEW,
    ),
    OpKind("tile", _tile_rule, _tile),
    OpKind("reshape", _reshape_rule, reshaped, extend=_to_sizes, **RESHAPED),
    OpKind("squeeze", _reshape_rule, reshaped, **RESHAPED),
    OpKind(
        "transpose",
        _transpose_rule,
        _transpose,
        passes=True,
        is_fused=True,
        evaluate=_turned,
        same=lambda text: text.op.param("permutation") == tuple(range(len(text.shape))),
        **VIEW,
    ),
    OpKind(
        "iota",
        text=_iota,
        group="constant",
        splits="freely",
        is_apart=True,
        extend=_to_shape,
        evaluate=_counted,
    ),
    OpKind("constant", group="constant", splits="by form"),
)
