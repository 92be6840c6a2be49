"""Gathers and scatters: ops that index rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from shardwright.codegen.ops.build import Builder, Shape, Shapes, factors_of, widened
from shardwright.codegen.ops.form_texts import rows as form_texts
from shardwright.codegen.ops.forms import rows as forms
from shardwright.codegen.ops.kind import OpKind
from shardwright.codegen.ops.literals import integers, number
from shardwright.codegen.ops.text import Expression, OpText
from shardwright.ir.program import Op, Param, Rule

GATHER = ("offset_dims", "collapsed_slice_dims", "start_index_map", "operand_batching_dims")
SCATTER = ("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims")


def _gather_rule(op: Op, operands: Shapes, results: Shapes) -> Rule:
    """Return the rule of a gather. A dimension that is indexed and collapsed is a reduction,
    because only one shard has each row.

    A dimension that is taken whole passes through, and so do the dimensions of the indices;
    batching dimensions occur in all three tensors. The dimension of index vectors must not be
    split.
    """
    build = Builder(operands, results)
    (table, indices), (out,) = operands, results
    offsets, sizes = op.integers("offset_dims"), op.integers("slice_sizes")
    gone = (*op.integers("collapsed_slice_dims"), *op.integers("operand_batching_dims"))
    window = dict(zip(_rest(len(table), gone), offsets, strict=True))
    rows = _rest(len(out), offsets)
    batching = _batching(op, "operand", "start_indices")
    _along_rows(build, indices, rows, batching, 2, out)
    for dim, to in window.items():
        if sizes[dim] == table[dim]:
            build.factor(table[dim], {0: dim, 2: to})
    for dim in set(gone) - set(batching.values()):
        build.factor(table[dim], {0: dim}, kind="reduction")
    for dim, to in window.items():
        if sizes[dim] != table[dim]:
            build.factor(table[dim], {0: dim}, kind="need_replication")
            build.factor(out[to], {2: to}, kind="need_replication")
    return build.rule()


def _scatter_rule(op: Op, operands: Shapes, results: Shapes) -> Rule:
    """Return the rule of a scatter, which is that of a gather in reverse. If updates are added, the
    rows of updates are a reduction."""
    build = Builder(operands, results)
    table, indices, updates = operands
    windows = op.integers("update_window_dims")
    gone = (*op.integers("inserted_window_dims"), *op.integers("operand_batching_dims"))
    window = dict(zip(_rest(len(table), gone), windows, strict=True))
    rows = _rest(len(updates), windows)
    kind = "reduction" if op.kind == "scatter-add" else "need_replication"
    batching = _batching(op, "operand", "scatter_indices")
    _along_rows(build, indices, rows, batching, 2, updates, kind, also=3)
    for dim, to in window.items():
        if updates[to] == table[dim]:
            build.factor(table[dim], {0: dim, 2: to, 3: dim})
        else:
            build.factor(table[dim], {0: dim, 3: dim}, kind="need_replication")
            build.factor(updates[to], {2: to}, kind="need_replication")
    for dim in set(gone) - set(batching.values()):
        build.factor(table[dim], {0: dim, 3: dim})
    return build.rule()


def _rest(rank: int, without: tuple[int, ...]) -> list[int]:
    return [dim for dim in range(rank) if dim not in without]


def _batching(op: Op, table: str, indices: str) -> dict[int, int]:
    left, right = (op.integers(f"{name}_batching_dims") for name in (indices, table))
    return dict(zip(left, right, strict=True))


def _along_rows(
    build: Builder,
    indices: Shape,
    rows: list[int],
    batching: dict[int, int],
    tensor: int,
    shape: Shape,
    kind: str = "pass",
    also: int | None = None,
) -> None:
    """Add factors for the dimensions of the indices and the corresponding dimensions `rows` of
    `tensor`. The last dimension of the indices, that of index vectors, must not be split."""
    for dim, to in enumerate(rows):
        table = batching.get(dim)
        places = {1: dim, tensor: to}
        if table is not None:
            places[0] = table
            if also is not None:
                places[also] = table
        build.factor(shape[to], places, kind="pass" if table is not None else kind)
    if len(indices) > len(rows):
        build.factor(indices[-1], {1: len(indices) - 1}, kind="need_replication")


def _mode(text: OpText) -> list[str]:
    given = str(text.has("mode"))
    names = {"CLIP": "clip", "FILL_OR_DROP": "fill", "PROMISE_IN_BOUNDS": "promise_in_bounds"}
    return [f'mode="{names[given]}"'] if given in names else []


def _sliced(text: OpText) -> tuple[int, ...]:
    offsets = text.op.integers("offset_dims")
    gone = {
        *text.op.integers("collapsed_slice_dims"),
        *text.op.integers("operand_batching_dims"),
    }
    window = [dim for dim in range(len(text.shapes[0])) if dim not in gone]
    sizes = list(text.op.integers("slice_sizes"))
    for dim, to in zip(window, offsets, strict=True):
        sizes[dim] = text.shape[to]
    return tuple(sizes)


def _gather(text: OpText) -> Expression:
    names = (*GATHER, "start_indices_batching_dims")
    numbers = ", ".join(f"{name}={integers(text.op.integers(name))}" for name in names)
    fill = text.has("fill_value")
    ends = [f"lax.GatherDimensionNumbers({numbers})", integers(_sliced(text)), *_mode(text)]
    ends += [] if fill is None else [f"fill_value={number(fill)}"]
    return "lax.gather", [*text.given, *ends]


def _scatter(text: OpText) -> Expression:
    names = (*SCATTER, "operand_batching_dims", "scatter_indices_batching_dims")
    numbers = ", ".join(f"{name}={integers(text.op.integers(name))}" for name in names)
    unique = ["unique_indices=True"] if text.has("unique_indices") else []
    ends = [f"lax.ScatterDimensionNumbers({numbers})", *unique, *_mode(text)]
    return f"lax.{text.op.kind.replace('-', '_')}", [*text.given, *ends]


def _held_by_gather(op: Op, rule: Rule) -> Iterator[int]:
    yield from rule.reduction


def _held_by_scatter(op: Op, rule: Rule) -> Iterator[int]:
    yield from factors_of(rule.operands[0]) - factors_of(rule.operands[2])


def _sliced_wider(op: Op, before: Sequence[Shape], after: Sequence[Shape]) -> dict[str, Param]:
    return {"slice_sizes": widened(op.integers("slice_sizes"), before[0], after[0])}


def _scattering(name: str, **more: Any) -> OpKind:
    return OpKind(
        name,
        _scatter_rule,
        _scatter,
        forms.scatter,
        form_texts.scatter,
        dims=(*SCATTER, "operand_batching_dims", "scatter_indices_batching_dims"),
        held=_held_by_scatter,
        **more,
    )


KINDS = (
    OpKind(
        "gather",
        _gather_rule,
        _gather,
        forms.gather,
        form_texts.gather,
        dims=(*GATHER, "start_indices_batching_dims"),
        held=_held_by_gather,
        is_apart=True,
        indexed="start_index_map",
        extend=_sliced_wider,
    ),
    _scattering("scatter"),
    _scattering(
        "scatter-add", operator="sum", is_apart=True, indexed="scatter_dims_to_operand_dims"
    ),
    _scattering("scatter-max"),
    _scattering("scatter-min"),
    _scattering("scatter-mul"),
)
