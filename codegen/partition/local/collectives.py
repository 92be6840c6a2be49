"""Collectives that the user wrote in a `shard_map`. They are kept, and their bytes are counted."""

from __future__ import annotations

import math
from collections.abc import Iterator

from shardwright.codegen.ops.collectives import ALIKE, GATHERS, axes_of
from shardwright.codegen.ops.forms.form import FormMove, SplitOp
from shardwright.codegen.partition.local.axes import CutAxes


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
        kind, received = "permute", source
    elif op.kind in ALIKE:
        kind, received = "all_reduce", 2 * source * (parts - 1) // parts
    elif op.kind in GATHERS:
        kind, received = "all_gather", source * (parts - 1)
    elif op.kind == "reduce_scatter":
        kind, received = "reduce_scatter", target * (parts - 1)
    elif op.kind == "ragged_all_to_all":  # upper bound: every row may come from another device
        kind, received = "all_to_all", target
    else:
        kind, received = "all_to_all", source * (parts - 1) // parts
    yield FormMove(kind, names, 0, 0, received, "as you wrote it")
