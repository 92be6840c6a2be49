"""The greatest along a split dimension: each shard's own first, then among these."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from shardwright.codegen.partition.local.forms.form import (
    FormMove,
    LocalForm,
    OpTensors,
    SplitOp,
)

BEST, PLACES = "each shard sends the best it has", "each shard sends where its best are"


def arg(tensors: OpTensors) -> LocalForm:
    """Return the form of argmax and argmin: the dimension is in no result, and shards along it are
    no terms."""
    (axis,) = tensors.op.integers("axes")
    rule = replace(tensors.rule, reduction=())
    return LocalForm(rule, frozenset({tensors.factor(0, axis)}), _best)


def _best(split: SplitOp) -> Iterator[FormMove]:
    (axis,) = split.op.integers("axes")
    if split.axes(0, axis):
        best = split.bytes(0, {axis: 1})
        yield split.gathered(0, axis, best, BEST)
        yield split.gathered(0, axis, split.bytes(1), PLACES)


def top_k(tensors: OpTensors) -> LocalForm:
    """Return the form of top-k."""
    last = len(tensors.shapes[0]) - 1
    factor = tensors.factor(0, last)
    kept = tuple(other for other in tensors.rule.need_replication if other != factor)
    rule = replace(tensors.rule, need_replication=kept)
    return LocalForm(rule, frozenset({factor}), _best_of_shards)


def _best_of_shards(split: SplitOp) -> Iterator[FormMove]:
    last = len(split.layouts[0].dims) - 1
    if split.axes(0, last):
        count = min(split.op.integers("k")[0], split.shape(0)[last])
        for result, what in (
            (1, BEST),
            (2, PLACES),
        ):
            yield split.gathered(0, last, split.bytes(result, {last: count}), what)
