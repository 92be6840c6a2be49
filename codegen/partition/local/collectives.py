"""Collectives that the user wrote in a `shard_map`. They are kept, and their bytes are counted."""

from __future__ import annotations

import math
from collections.abc import Iterator

from shardwright.codegen.ops.collectives import ALIKE, GATHERS, axes_of
from shardwright.codegen.ops.forms.form import FormMove, SplitOp
from shardwright.codegen.partition.local.axes import CutAxes
from shardwright.ir.steps import ring_bytes


def own_moves(split: SplitOp, axes: CutAxes) -> Iterator[FormMove]:
    """Yield the communication of a collective that the user wrote, with the bytes that a device
    receives in a ring algorithm. Yield nothing for a collective over a single device."""
    op = split.op
    names = axes.whole_axes(axes_of(op))
    parts = math.prod(axes.sizes[name] for name in names)
    if parts == 1:
        return
    source, target = split.bytes(0), split.bytes(split.tensors.result)
    if op.kind == "ppermute":
        made, result = "permute", source
    elif op.kind in ALIKE:
        made, result = "all_reduce", source
    elif op.kind in GATHERS:
        made, result = "all_gather", source * parts
    elif op.kind == "reduce_scatter":
        made, result = "reduce_scatter", target
    else:
        made, result = "all_to_all", source
    received = ring_bytes(made, result, parts)
    if op.kind == "ragged_all_to_all":  # upper bound: every row may come from another device
        received = target
    yield FormMove(made, names, 0, 0, received, "as you wrote it")
