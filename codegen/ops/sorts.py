"""Sorts, and the largest elements along a dimension."""

from __future__ import annotations

from shardwright.codegen.ops.build import Builder, Shapes, along_one
from shardwright.codegen.ops.form_texts import choices as form_texts
from shardwright.codegen.ops.forms import choices as forms
from shardwright.codegen.ops.kind import OpKind
from shardwright.codegen.ops.text import Expression, OpText
from shardwright.ir.program import Op, Rule


def _sort_rule(op: Op, operands: Shapes, results: Shapes) -> Rule:
    return along_one(op.integers("dimension")[0], operands, results, "need_replication")


def _top_k_rule(op: Op, operands: Shapes, results: Shapes) -> Rule:
    """Return the rule of top-k. The last dimension must not be split. Shardy has no rule for this
    op."""
    build = Builder(operands, results)
    last = len(operands[0]) - 1
    for dim in range(last):
        build.factor(operands[0][dim], {0: dim, 1: dim, 2: dim})
    build.factor(operands[0][last], {0: last}, kind="need_replication")
    build.factor(results[0][last], {1: last, 2: last}, kind="need_replication")
    return build.rule()


def _approx_top_k_rule(op: Op, operands: Shapes, results: Shapes) -> Rule:
    build = Builder(operands, results)
    (whole,) = op.integers("reduction_dimension")
    for dim, extent in enumerate(operands[0]):
        if dim != whole:
            build.factor(extent, {0: dim, 1: dim, 2: dim})
            continue
        build.factor(extent, {0: dim}, kind="need_replication")
        build.factor(results[0][dim], {1: dim, 2: dim}, kind="need_replication")
    return build.rule()


def _sort(text: OpText) -> Expression:
    ends = [f"dimension={text.has('dimension')}", f"num_keys={text.has('num_keys')}"]
    stable = f"is_stable={bool(text.has('is_stable'))}"
    if len(text.given) == 1:
        return "lax.sort", [text.given[0], ends[0], stable]
    return "lax.sort", [f"({', '.join(text.given)})", *ends, stable]


def _top_k(text: OpText) -> Expression:
    return "lax.top_k", [*text.given, str(text.has("k"))]


def _approx_top_k(text: OpText) -> Expression:
    names = ("reduction_dimension", "recall_target", "reduction_input_size_override")
    words = [f"{name}={text.has(name)}" for name in (*names, "aggregate_to_topk")]
    which = "max" if text.has("is_max_k") else "min"
    return f"lax.approx_{which}_k", [*text.given, str(text.has("k")), *words]


KINDS = (
    OpKind("sort", _sort_rule, _sort, is_apart=True),
    OpKind("top_k", _top_k_rule, _top_k, forms.top_k, form_texts.top_k),
    OpKind("approx_top_k", _approx_top_k_rule, _approx_top_k),
)
