"""Reductions for which there is no collective, such as a product: each shard reduces its own rows,
then the devices reduce these results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from shardwright.codegen.ops.forms.form import (
    FormMove,
    LocalForm,
    OpTensors,
    SplitOp,
)


def reduced(tensors: OpTensors) -> LocalForm | None:
    """Return the form of a reduction whose results cannot be partial, or None for "any" and "all"
    of booleans, which collectives compute as a maximum and a minimum."""
    if tensors.op.kind in ("reduce_and", "reduce_or") and tensors.values[0].dtype == "bool":
        return None
    rule = replace(tensors.rule, reduction=())
    return LocalForm(rule, frozenset(tensors.rule.reduction), _reduced)


def _reduced(split: SplitOp) -> Iterator[FormMove]:
    size = split.bytes(split.tensors.result)
    for axis in split.op.integers("axes"):
        if split.axes(0, axis):
            yield split.gathered(0, axis, size, "each shard sends its own result")
