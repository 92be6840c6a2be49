"""Cumulative ops along a split dimension, such as a cumulative sum, product or maximum: each device
scans its shard, then combines the result with the totals of all earlier shards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from shardwright.codegen.ops.forms.form import (
    FormMove,
    LocalForm,
    OpTensors,
    SplitOp,
)


def cumulative(tensors: OpTensors) -> LocalForm:
    """Return the form of a cumulative sum, product, maximum, minimum or logsumexp."""
    factor = tensors.factor(0, tensors.op.integers("axis")[0])
    return LocalForm(replace(tensors.rule, permutation=()), frozenset({factor}), _totals)


def _totals(split: SplitOp) -> Iterator[FormMove]:
    (axis,) = split.op.integers("axis")
    if split.axes(0, axis):
        total = split.bytes(0, {axis: 1})
        yield split.gathered(0, axis, total, "each block adds the total of the blocks before it")
