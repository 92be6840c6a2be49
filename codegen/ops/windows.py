"""Convolutions, and sums, maxima and minima over windows with their gradients."""

from __future__ import annotations

from shardwright.codegen.ops.build import Builder, Shapes
from shardwright.codegen.ops.convolution_rule import convolution_rule
from shardwright.codegen.ops.form_texts import windows as form_texts
from shardwright.codegen.ops.form_texts.windows import window_fill
from shardwright.codegen.ops.forms import windows as forms
from shardwright.codegen.ops.kind import OpKind
from shardwright.codegen.ops.literals import integers
from shardwright.codegen.ops.precision import precision, preferred
from shardwright.codegen.ops.text import Expression, MakeText, OpText
from shardwright.ir.program import Op, Rule


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
    """Return the rule of the gradient of a maximum over windows: its operands are the cotangents of
    windows, and the tensor from which windows were selected."""
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
    """Return a convolution with all its parameters."""
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


def _over_windows(name: str, function: str) -> OpKind:
    return OpKind(name, _window_rule, _window(function), forms.window, form_texts.window)


KINDS = (
    OpKind(
        "conv_general_dilated",
        _convolution_rule,
        _convolution,
        forms.convolution,
        form_texts.convolution,
    ),
    OpKind("reduce_window", _window_rule),
    _over_windows("reduce_window_max", "lax.max"),
    _over_windows("reduce_window_min", "lax.min"),
    _over_windows("reduce_window_sum", "lax.add"),
    OpKind(
        "select_and_scatter_add",
        _select_and_scatter_add_rule,
        _select_and_scatter,
        forms.select_and_scatter,
        form_texts.select_and_scatter,
    ),
)
