"""Extrema along a split dimension: each shard finds its own extrema, then devices compare these
candidates.

If another dimension can be divided among the devices, each device compares the candidates of its
part and sends the result to all. Otherwise every device receives all candidates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from shardwright.codegen.ops.forms.form import (
    FormMove,
    LocalForm,
    OpTensors,
    SplitOp,
)
from shardwright.ir.steps import ring_bytes

BEST, PLACES = (
    "each shard sends its best elements",
    "each shard sends the indices of its best elements",
)
FOUND = "each device sends the results of its part to all"


def shared_dim(shape: Sequence[int], along: int, parts: int) -> int | None:
    """Return the dimension to divide among devices so that fewer bytes move than if each device
    received all candidates, or None. `shape`: the shape of the operand's shard."""
    if parts < 3:
        return None
    dims = (d for d, extent in enumerate(shape) if d != along and extent and extent % parts == 0)
    return next(dims, None)


def arg(tensors: OpTensors) -> LocalForm:
    """Return the form of argmax and argmin. The reduced dimension is split, but the results are not
    partial."""
    (axis,) = tensors.op.integers("axes")
    rule = replace(tensors.rule, reduction=())
    return LocalForm(rule, frozenset({tensors.factor(0, axis)}), _best)


def _best(split: SplitOp) -> Iterator[FormMove]:
    (axis,) = split.op.integers("axes")
    if split.axes(0, axis):
        yield from _chosen(split, axis, (split.bytes(0, {axis: 1}), split.bytes(1)), (1,))


def top_k(tensors: OpTensors) -> LocalForm:
    last = len(tensors.shapes[0]) - 1
    factor = tensors.factor(0, last)
    kept = tuple(other for other in tensors.rule.need_replication if other != factor)
    rule = replace(tensors.rule, need_replication=kept)
    return LocalForm(rule, frozenset({factor}), _best_of_shards)


def _best_of_shards(split: SplitOp) -> Iterator[FormMove]:
    last = len(split.layouts[0].dims) - 1
    if split.axes(0, last):
        count = min(split.op.integers("k")[0], split.shape(0)[last])
        sizes = split.bytes(1, {last: count}), split.bytes(2, {last: count})
        yield from _chosen(split, last, sizes, (1, 2))


def _chosen(
    split: SplitOp, along: int, sizes: tuple[int, int], results: Sequence[int]
) -> Iterator[FormMove]:
    """Yield the communications of an extremum or a top-k. `sizes`: the bytes of a shard's
    candidates and of their positions."""
    parts, axes = split.parts(0, along), split.axes(0, along)
    if shared_dim(split.shape(0), along, parts) is None:
        for size, what in zip(sizes, (BEST, PLACES), strict=True):
            yield split.gathered(0, along, size, what)
        return
    for size, what in zip(sizes, (BEST, PLACES), strict=True):
        received = ring_bytes("all_to_all", size, parts)
        yield FormMove("all_to_all", axes, 0, along, received, what)
    for result in results:
        found = split.bytes(result) // parts
        yield split.gathered(0, along, found, FOUND)
