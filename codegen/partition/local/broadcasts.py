"""Make broadcasts in the layouts that their uses need, so that the operand moves and not the larger
result.

The result of a broadcast has its propagated layout, unless devices receive fewer bytes if it is
made in a layout that one of its uses needs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from shardwright.codegen.moves.paths import way
from shardwright.codegen.ops.layout import LocalLayout
from shardwright.codegen.partition.local.assign import FactorAxes, candidates, splits_of
from shardwright.codegen.partition.local.axes import CutAxes
from shardwright.codegen.partition.local.control import is_control
from shardwright.codegen.partition.local.costs import price_of_uses
from shardwright.codegen.partition.local.lower import Choice
from shardwright.codegen.partition.local.steps import tensor_of
from shardwright.ir.program import Op, Program, ops_of

Needed = Sequence[LocalLayout | None]


def with_broadcasts_as_needed(
    program: Program, axes: CutAxes, choice: Choice, layouts: Needed
) -> tuple[Choice, Needed]:
    """Return the split of each op, and the layout that each value must have, or None for a
    broadcast that is made in the layout that its uses need. `choice`, `layouts`: the splits and
    layouts before this pass."""
    needs = _needs(program, axes, choice)
    changed: dict[int, FactorAxes] = {}
    for op in ops_of(program.body):
        if op.kind == "broadcast_in_dim":
            (value,) = op.results
            uses = needs.get(value, ())
            split = _cheaper(op, program, axes, choice[value], layouts, uses)
            changed.update({} if split is None else {value: split})
    after = [None if value in changed else layout for value, layout in enumerate(layouts)]
    return {**choice, **changed}, after


def _needs(program: Program, axes: CutAxes, choice: Choice) -> dict[int, tuple[LocalLayout, ...]]:
    """Return the layouts that the uses of each value need, in order. Omit values that loops or
    branches use."""
    found: dict[int, list[LocalLayout]] = defaultdict(list)
    inside: set[int] = set()
    for op in ops_of(program.body):
        if is_control(op):
            inside.update((*op.operands, *(v for body in op.bodies for v in body.results)))
            continue
        splits = splits_of(op, program.values, axes)
        layouts = splits.layouts(choice[op.results[0]])
        for value, need in zip(op.operands, layouts.operands, strict=True):
            found[value].append(need)
    for value, sharding in zip(program.body.results, program.results, strict=True):
        found[value].append(axes.layout(sharding, program.values[value].shape))
    return {value: tuple(needs) for value, needs in found.items() if value not in inside}


def _cheaper(
    op: Op,
    program: Program,
    axes: CutAxes,
    known: FactorAxes,
    layouts: Needed,
    needs: tuple[LocalLayout, ...],
) -> FactorAxes | None:
    """Return the split of a broadcast with which devices receive the fewest bytes if the result
    need not have its layout in `layouts`. Return None if no split costs less than `known` with that
    layout, if a use needs that layout, or if an operand has no layout yet."""
    have = tuple(layout for v in op.operands if (layout := layouts[v]))
    own = layouts[op.results[0]]
    if own is None or own in needs or not needs or len(have) < len(op.operands):
        return None
    splits = splits_of(op, program.values, axes)
    tensors = [tensor_of(program.values[v], axes) for v in (*op.operands, *op.results)]

    def price(split: FactorAxes, uses: tuple[LocalLayout, ...]) -> float:
        made = splits.layouts(split)
        moved = zip(have, made.operands, tensors[:-1], strict=True)
        before = sum(way((source,), need, tensor)[0] for source, need, tensor in moved)
        return before + price_of_uses(made.results[0], uses, tensors[-1])

    found = {split: price(split, needs) for n in needs for split in candidates(splits, (*have, n))}
    best = min(found, key=lambda split: found[split])
    return best if found[best] < price(known, (own, *needs)) else None
