"""Convolutions, and sums, maxima and minima over windows with their gradients."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from shardwright.codegen.ops.build import Builder, Shape, Shapes
from shardwright.codegen.ops.convolution_rule import convolution_rule
from shardwright.codegen.ops.fills import Fill
from shardwright.codegen.ops.form_texts import windows as form_texts
from shardwright.codegen.ops.form_texts.windows import window_fill
from shardwright.codegen.ops.forms import windows as forms
from shardwright.codegen.ops.kind import NONE, Dims, OpKind
from shardwright.codegen.ops.literals import integers
from shardwright.codegen.ops.precision import precision, preferred
from shardwright.codegen.ops.text import Expression, MakeText, OpText
from shardwright.ir.program import Op, Param, Rule


def _convolution_rule(op: Op, operands: Shapes, results: Shapes) -> Rule:
    return convolution_rule(op, operands, results)


def _window_rule(op: Op, operands: Shapes, results: Shapes) -> Rule:
    build = Builder(operands, results)
    size = op.integers("window_dimensions")
    for dim, extent in enumerate(results[0]):
        moves = size[dim] != 1 or extent != operands[0][dim]
        kind = "permutation" if moves else "pass"
        build.factor(extent, {0: dim, len(operands): dim}, kind=kind)
    return build.rule()


def _select_and_scatter_add_rule(op: Op, operands: Shapes, results: Shapes) -> Rule:
    """Return the rule of the gradient of a maximum over windows. Its operands are the cotangents
    of the windows, and the tensor that contains the windows."""
    build = Builder(operands, results)
    size = op.integers("window_dimensions")
    for dim, extent in enumerate(results[0]):
        if size[dim] == 1 and operands[0][dim] == extent:
            build.factor(extent, {0: dim, 1: dim, 2: dim})
            continue
        build.factor(extent, {1: dim, 2: dim}, kind="permutation")
        build.factor(operands[0][dim], {0: dim}, kind="need_replication")
    return build.rule()


def _convolution(text: OpText) -> Expression:
    op = text.op
    specs = ", ".join(integers(op.integers(f"{side}_spec")) for side in ("lhs", "rhs", "out"))
    names = ("window_strides", "padding", "lhs_dilation", "rhs_dilation")
    ends = [f"{name}={integers(op.param(name))}" for name in names]
    ends.append(f"dimension_numbers=lax.ConvDimensionNumbers({specs})")
    groups = ("feature_group_count", "batch_group_count")
    ends += [f"{name}={op.param(name)}" for name in groups if op.param(name) != 1]
    return "lax.conv_general_dilated", [*text.given, *ends, *precision(text), *preferred(text)]


def _window(function: str) -> MakeText:
    def window(text: OpText) -> Expression:
        names = ("window_dimensions", "window_strides", "padding", "base_dilation")
        ends = [f"{name}={integers(text.op.param(name))}" for name in (*names, "window_dilation")]
        return "lax.reduce_window", [text.given[0], window_fill(text), function, *ends]

    return window


def _select_and_scatter(text: OpText) -> Expression:
    names = ("window_dimensions", "window_strides", "padding")
    ends = [f"{name}={integers(text.op.param(name))}" for name in names]
    choose = f"select_prim=lax.{text.has('select_prim')}_p"
    return "lax.select_and_scatter_add_p.bind", [*text.given, choose, *ends]


def _flops(op: Op, shapes: tuple[Shape, ...], rule: Rule) -> int:
    each = math.prod(shapes[1]) // shapes[1][op.integers("rhs_spec")[0]]
    return 2 * math.prod(shapes[2]) * each


def _held(op: Op, rule: Rule) -> Iterator[int]:
    """Yield the spatial factors of a convolution or, if it has groups, all its factors."""
    groups = (*op.integers("feature_group_count"), *op.integers("batch_group_count"))
    sides = ("lhs", "rhs", "out")
    for spec, dims in zip(sides, rule.tensors, strict=True):
        moved = op.integers(f"{spec}_spec")[2 if max(groups) == 1 else 0 :]
        for dim in moved:
            yield from dims[dim]


def _moved(op: Op, shapes: Sequence[Shape], extents: Mapping[int, int]) -> list[Dims]:
    found, each = [NONE] * len(shapes), forms.slidings(op, tuple(shapes))
    found[0] = frozenset(sliding.dims[0] for sliding in each)
    found[-1] = frozenset(sliding.dims[2] for sliding in each)
    kernel = (sliding.dims[1] for sliding in each)
    found[1] |= frozenset(dim for dim in kernel if dim is not None)
    return found


def _pooled(op: Op, shapes: Sequence[Shape], extents: Mapping[int, int]) -> list[Dims]:
    return [frozenset(forms.pooled_dims(op, tuple(shapes)))] * len(shapes)


def _convolved(op: Op, before: Sequence[Shape], after: Sequence[Shape]) -> dict[str, Param] | None:
    return {"padding": tuple(_padding(op, before, after, op.integers("lhs_spec")[2:]))}


def _windowed(op: Op, before: Sequence[Shape], after: Sequence[Shape]) -> dict[str, Param] | None:
    padding = _padding(op, before, after, range(len(before[0])))
    return None if any(high < 0 for _, high in padding) else {"padding": tuple(padding)}


def _padding(
    op: Op, before: Sequence[Shape], after: Sequence[Shape], spatial: Sequence[int]
) -> list[tuple[int, int]]:
    """Return the padding of windows: more after the end if the result or the kernel has more rows,
    less if the operand has more. `spatial`: the dimensions of the operand that have padding."""
    padding = forms.pairs_of(op)
    more = [
        [new - old for old, new in zip(*pair, strict=True)]
        for pair in zip(before, after, strict=True)
    ]
    for each in forms.slidings(op, tuple(before)):
        left, right, to = each.dims
        place = spatial.index(left)
        rows = more[-1][to] * each.stride - more[0][left] * each.base
        rows += 0 if right is None else more[1][right] * each.dilation
        padding[place] = padding[place][0], padding[place][1] + rows
    return padding


def _selected(op: Op, before: Sequence[Shape], after: Sequence[Shape]) -> dict[str, Param] | None:
    stride, padding = op.integers("window_strides"), forms.pairs_of(op)
    for dim, (low, high) in enumerate(padding):
        windows, rows = (after[n][dim] - before[n][dim] for n in (0, 1))
        padding[dim] = low, high + windows * stride[dim] - rows
    return None if any(high < 0 for _, high in padding) else {"padding": tuple(padding)}


def _fill_of_selected(op: Op, place: int) -> Fill:
    if place == 0:
        return "zero"
    return "least" if forms.fills(op) == "max" else "greatest"


def _over_windows(name: str, function: str, fill: Fill) -> OpKind:
    return OpKind(
        name,
        _window_rule,
        _window(function),
        forms.window,
        form_texts.window,
        fill=fill,
        moved=_moved,
        extend=_windowed,
        dilation="base_dilation",
    )


KINDS = (
    OpKind(
        "conv_general_dilated",
        _convolution_rule,
        _convolution,
        forms.convolution,
        form_texts.convolution,
        stem="conv",
        dims=("lhs_spec", "rhs_spec", "out_spec"),
        held=_held,
        operator="sum",
        flops=_flops,
        fill="zero",
        is_bilinear=True,
        moved=_moved,
        extend=_convolved,
        dilation="lhs_dilation",
    ),
    OpKind("reduce_window", _window_rule),
    _over_windows("reduce_window_max", "lax.max", "least"),
    _over_windows("reduce_window_min", "lax.min", "greatest"),
    _over_windows("reduce_window_sum", "lax.add", "zero"),
    OpKind(
        "select_and_scatter_add",
        _select_and_scatter_add_rule,
        _select_and_scatter,
        forms.select_and_scatter,
        form_texts.select_and_scatter,
        fill=_fill_of_selected,
        moved=_pooled,
        extend=_selected,
        is_bound=True,
    ),
)
