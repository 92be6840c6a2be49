"""Ops that move rows along a dimension: slices, splits, pads, concatenations, reversals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from shardwright.codegen.ops.build import Builder, Shape, Shapes, along_one, factors_of, widened
from shardwright.codegen.ops.form_texts import boxes as box_texts
from shardwright.codegen.ops.form_texts import rows as row_texts
from shardwright.codegen.ops.form_texts import shifts as shift_texts
from shardwright.codegen.ops.form_texts.statement import FormLines, FormText
from shardwright.codegen.ops.forms import boxes, rows, shifts
from shardwright.codegen.ops.forms.form import LocalForm, OpTensors
from shardwright.codegen.ops.kind import NONE, Dims, MakeRule, OpKind
from shardwright.codegen.ops.literals import integers, listed
from shardwright.codegen.ops.text import Expression, MakeText, OpText
from shardwright.ir.program import Op, Param, Rule


def _slice_rule(op: Op, operands: Shapes, results: Shapes) -> Rule:
    """Return the rule of a slice. A dimension that is not taken whole is a permutation, because its
    elements move between shards."""
    build = Builder(operands, results)
    for dim, extent in enumerate(operands[0]):
        cut = any(extent != result[dim] for result in results)
        everywhere = {0: dim, **{1 + i: dim for i in range(len(results))}}
        build.factor(extent, everywhere, kind="permutation" if cut else "pass")
    return build.rule()


def _pad_rule(op: Op, operands: Shapes, results: Shapes) -> Rule:
    build = Builder(operands, results)
    for dim, extent in enumerate(operands[0]):
        cut = extent != results[0][dim]
        build.factor(extent, {0: dim, 2: dim}, kind="permutation" if cut else "pass")
    return build.rule()


def _shift_rule(op: Op, operands: Shapes, results: Shapes) -> Rule:
    """Return the rule of a shift, whose result concatenates stretches of its operands along a
    dimension."""
    build = Builder(operands, results)
    (dimension,) = op.integers("dimension")
    for dim, extent in enumerate(results[0]):
        ranked = [place for place, shape in enumerate(operands) if shape]
        alike = {place: dim for place in ranked if operands[place][dim] == extent}
        kind = "permutation" if dim == dimension else "pass"
        build.factor(extent, {**alike, len(operands): dim}, kind=kind)
        for place in ranked:
            if place not in alike:
                build.factor(operands[place][dim], {place: dim}, kind="need_replication")
    return build.rule()


def _rev_rule(op: Op, operands: Shapes, results: Shapes) -> Rule:
    build = Builder(operands, results)
    reversed_ = op.integers("dimensions")
    for dim, extent in enumerate(operands[0]):
        kind = "permutation" if dim in reversed_ else "pass"
        build.factor(extent, {0: dim, 1: dim}, kind=kind)
    return build.rule()


def _concatenate_rule(op: Op, operands: Shapes, results: Shapes) -> Rule:
    return along_one(op.integers("dimension")[0], operands, results, "need_replication")


def _dynamic_slice_rule(op: Op, operands: Shapes, results: Shapes) -> Rule:
    build = Builder(operands, results)
    place = len(operands)
    for dim, extent in enumerate(results[0]):
        cut = extent != operands[0][dim]
        kind = "blocked" if cut else "pass"
        build.factor(operands[0][dim], {0: dim, place: dim}, kind=kind)
    return build.rule()


def _dynamic_update_slice_rule(op: Op, operands: Shapes, results: Shapes) -> Rule:
    build = Builder(operands, results)
    place = len(operands)
    for dim, extent in enumerate(results[0]):
        update = operands[1][dim]
        if update == extent:
            build.factor(extent, {0: dim, 1: dim, place: dim})
            continue
        build.factor(extent, {0: dim, place: dim})
        build.factor(update, {1: dim}, kind="need_replication")
    return build.rule()


def _slice(text: OpText) -> Expression:
    starts, limits = text.op.integers("start_indices"), text.op.integers("limit_indices")
    strides = text.has("strides")
    steps = strides if isinstance(strides, tuple) else (1,) * len(starts)
    ranges = []
    for dim, (start, limit, step) in enumerate(zip(starts, limits, steps, strict=True)):
        whole = text.shape[dim] == text.shapes[0][dim]
        tail = "" if step == 1 else f":{step}"
        ranges.append(":" if whole else f"{start}:{limit}{tail}")
    return f"{text.given[0]}[{', '.join(ranges)}]"


def _pad(text: OpText) -> Expression:
    return "lax.pad", [*text.given, integers(text.op.param("padding_config"))]


def _concatenate(text: OpText) -> Expression:
    return "jnp.concatenate", [listed(text.given), f"axis={text.has('dimension')}"]


def _rev(text: OpText) -> Expression:
    return "lax.rev", [*text.given, integers(text.op.integers("dimensions"))]


def _split(text: OpText) -> Expression:
    axis = text.op.integers("axis")[0]
    sizes = tuple(shape[axis] for shape in text.shapes[1:])
    return "lax.split", [*text.given, integers(sizes), f"axis={axis}"]


def _dynamic_slice(text: OpText) -> Expression:
    """Return a dynamic slice with its starts clamped explicitly: XLA merges nested slices by adding
    their starts, and an outer start that is out of range would stay out of range."""
    pairs = enumerate(zip(text.shapes[0], text.shape, strict=True), 1)
    starts = [text.clamped(place, *sizes) for place, sizes in pairs]
    return "lax.dynamic_slice", [text.given[0], listed(starts), integers(text.shape)]


def _dynamic_update_slice(text: OpText) -> Expression:
    """Return a dynamic update with its starts clamped, because the function counts negative ones
    from the end, unless the program does so too."""
    source, update, *starts = text.given
    pairs = enumerate(zip(text.shapes[0], text.shapes[1], strict=True), 2)
    for place, sizes in pairs:
        if place not in text.from_end:
            starts[place - 2] = text.clamped(place, *sizes)
    return "lax.dynamic_update_slice", [source, update, listed(starts)]


def _slice_form(tensors: OpTensors) -> LocalForm | None:
    form = boxes.boxes if boxes.is_split_as_boxes(tensors) else rows.read_slice
    return form(tensors)


def _slice_form_text(form: FormText) -> FormLines:
    text = row_texts.read_slice if row_texts.is_read_whole(form) else box_texts.boxes
    return text(form)


def _outside_update(op: Op, rule: Rule) -> Iterator[int]:
    yield from factors_of(rule.operands[0]) - factors_of(rule.operands[1])


def _moved_by_pad(op: Op, shapes: Sequence[Shape], extents: Mapping[int, int]) -> list[Dims]:
    dims = frozenset(dim for dim, _ in shifts.padded_dims(op))
    return [dims, *[NONE] * (len(shapes) - 2), dims]


def _moved_by_shift(op: Op, shapes: Sequence[Shape], extents: Mapping[int, int]) -> list[Dims]:
    (dim,) = op.integers("dimension")
    padded = [extents.get(shape[dim], shape[dim]) if shape else 0 for shape in shapes]
    return [frozenset((dim,)) if own == padded[-1] else NONE for own in padded]


def _to_limits(op: Op, before: Sequence[Shape], after: Sequence[Shape]) -> dict[str, Param]:
    return {"limit_indices": widened(op.integers("limit_indices"), before[0], after[0])}


def _to_config(op: Op, before: Sequence[Shape], after: Sequence[Shape]) -> dict[str, Param]:
    config = [(0, 0, 0)] * len(after[0])
    for dim, (low, _, inner) in shifts.padded_dims(op):
        rows = low + after[0][dim] + max(after[0][dim] - 1, 0) * inner
        config[dim] = low, after[-1][dim] - rows, inner
    return {"padding_config": tuple(config)}


def _joined(op: Op, given: Sequence[Any], shape: Shape) -> Any:
    return np.concatenate(given, op.integers("dimension")[0])


def _reversed(op: Op, given: Sequence[Any], shape: Shape) -> Any:
    return np.flip(given[0], op.integers("dimensions"))


def _moving(name: str, rule: MakeRule, text: MakeText, **more: Any) -> OpKind:
    return OpKind(name, rule, text, boxes.boxes, box_texts.boxes, **more)


KINDS = (
    OpKind(
        "slice",
        _slice_rule,
        _slice,
        _slice_form,
        _slice_form_text,
        terms="first",
        is_apart=True,
        extend=_to_limits,
        keeps=True,
    ),
    _moving("split", _slice_rule, _split, is_apart=True, is_list=True),
    _moving(
        "pad", _pad_rule, _pad, is_apart=True, moved=_moved_by_pad, extend=_to_config, joins=True
    ),
    _moving(
        "concatenate",
        _concatenate_rule,
        _concatenate,
        terms="together",
        is_apart=True,
        evaluate=_joined,
        joins=True,
    ),
    _moving("rev", _rev_rule, _rev, terms="first", is_apart=True, evaluate=_reversed),
    _moving("take_rows", _rev_rule, box_texts.plain_rows, terms="first"),
    OpKind(
        "shift",
        _shift_rule,
        shift_texts.plain_shift,
        shifts.shift,
        shift_texts.shift,
        is_apart=True,
        moved=_moved_by_shift,
    ),
    OpKind(
        "dynamic_slice",
        _dynamic_slice_rule,
        _dynamic_slice,
        rows.read_slice,
        row_texts.read_slice,
        passes=True,
    ),
    OpKind(
        "dynamic_update_slice",
        _dynamic_update_slice_rule,
        _dynamic_update_slice,
        rows.write_slice,
        row_texts.write_slice,
        stem="update",
        passes=True,
        held=_outside_update,
        joins=True,
    ),
)
"""Passes insert `take_rows` and `shift`, which occur in no jaxpr."""
