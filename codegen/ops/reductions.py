"""Reductions over dimensions, argmax and argmin."""

from __future__ import annotations

from typing import Any

from shardwright.codegen.ops.build import Builder, Shapes
from shardwright.codegen.ops.form_texts import choices as choice_texts
from shardwright.codegen.ops.form_texts import reductions as form_texts
from shardwright.codegen.ops.forms import choices, reductions
from shardwright.codegen.ops.kind import OpKind
from shardwright.codegen.ops.literals import dtype_text, integers
from shardwright.codegen.ops.shapes import reshaped
from shardwright.codegen.ops.text import Expression, MakeText, OpText
from shardwright.ir.program import Op, Rule


def _reduce_rule(op: Op, operands: Shapes, results: Shapes) -> Rule:
    build = Builder(operands, results)
    axes = op.integers("axes")
    kept = [dim for dim in range(len(operands[0])) if dim not in axes]
    for to, dim in enumerate(kept):
        build.factor(operands[0][dim], {0: dim, 1: to})
    for dim in sorted(axes):
        build.factor(operands[0][dim], {0: dim}, kind="reduction")
    return build.rule()


def _reduction(plain: str, wide: tuple[str, ...]) -> MakeText:
    """Return the function that writes a reduction. It uses `jnp` if that keeps the dtype, whatever
    jax_enable_x64 is, and accepts the shard (`jnp` rejects the maximum of no elements)."""

    def reduction(text: OpText) -> Expression:
        axes = text.op.integers("axes")
        if all(text.shapes[0][axis] == 1 for axis in axes):
            return reshaped(text)
        if text.dtype in wide and 0 not in text.shapes[0]:
            axis = axes if len(axes) > 1 else axes[0]
            return f"jnp.{plain}", [text.given[0], f"axis={integers(axis)}"]
        return f"lax.reduce_{plain}", [text.given[0], f"axes={integers(axes)}"]

    return reduction


def _of_ones(text: OpText) -> bool:
    return all(text.shapes[0][axis] == 1 for axis in text.op.integers("axes"))


def _arg(text: OpText) -> Expression:
    (axis,) = text.op.integers("axes")
    return f"lax.{text.op.kind}", [text.given[0], str(axis), dtype_text(text.dtype)]


def _reducing(name: str, plain: str, wide: tuple[str, ...], **more: Any) -> OpKind:
    return OpKind(name, _reduce_rule, _reduction(plain, wide), **more)


WIDE = ("f32", "f64", "i32", "bf16", "f16")
BY_SHARD = {"form": reductions.reduced, "form_text": form_texts.reduced}
ARG = (_reduce_rule, _arg, choices.arg, choice_texts.arg)
KINDS = (
    _reducing(
        "reduce_sum",
        "sum",
        ("f32", "f64"),
        operator="sum",
        terms="first",
        fill="zero",
        reshapes=_of_ones,
    ),
    _reducing(
        "reduce_max",
        "max",
        WIDE,
        operator="max",
        does="takes the maximum over",
        fill="least",
        reshapes=_of_ones,
    ),
    _reducing(
        "reduce_min",
        "min",
        WIDE,
        operator="min",
        does="takes the minimum over",
        fill="greatest",
        reshapes=_of_ones,
    ),
    _reducing("reduce_prod", "prod", ("f32", "f64"), fill="one", reshapes=_of_ones, **BY_SHARD),
    _reducing(
        "reduce_and", "and", (), operator="min", does="holds for all of", fill="ones", **BY_SHARD
    ),
    _reducing(
        "reduce_or", "or", (), operator="max", does="holds for any of", fill="zero", **BY_SHARD
    ),
    _reducing("reduce_xor", "xor", (), fill="zero", **BY_SHARD),
    OpKind("argmax", *ARG, fill="least"),
    OpKind("argmin", *ARG, fill="greatest"),
)
