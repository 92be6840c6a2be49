"""Cumulative ops: sums, products, maxima, minima and logsumexps of all rows so far."""

from __future__ import annotations

from shardwright.codegen.ops.build import Shapes, along_one
from shardwright.codegen.ops.fills import Fill
from shardwright.codegen.ops.form_texts import scans as form_texts
from shardwright.codegen.ops.forms import scans as forms
from shardwright.codegen.ops.kind import OpKind
from shardwright.codegen.ops.text import Expression, OpText
from shardwright.ir.program import Op, Rule


def _cumulative_rule(op: Op, operands: Shapes, results: Shapes) -> Rule:
    return along_one(op.integers("axis")[0], operands, results, "permutation")


def _text(text: OpText) -> Expression:
    reverse = ["reverse=True"] if text.has("reverse") else []
    return f"lax.{text.op.kind}", [*text.given, f"axis={text.has('axis')}", *reverse]


def _cumulative(name: str, fill: Fill) -> OpKind:
    return OpKind(
        name,
        _cumulative_rule,
        _text,
        forms.cumulative,
        form_texts.cumulative,
        "cumulative",
        fill=fill,
    )


KINDS = (
    _cumulative("cumlogsumexp", "least"),
    _cumulative("cummax", "least"),
    _cumulative("cummin", "greatest"),
    _cumulative("cumprod", "one"),
    _cumulative("cumsum", "zero"),
)
