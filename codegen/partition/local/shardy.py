"""The mode `as_shardy`: every value has its propagated sharding.

Each op gets the split that costs least, including the moves from and to the propagated layouts of
its operands and results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardwright.codegen.moves.paths import way
from shardwright.codegen.ops.layout import LocalLayout
from shardwright.codegen.partition.local.assign import FactorAxes, Splits, candidates, splits_of
from shardwright.codegen.partition.local.axes import CutAxes, cut_axes
from shardwright.codegen.partition.local.broadcasts import with_broadcasts_as_needed
from shardwright.codegen.partition.local.control import check_manual, is_control
from shardwright.codegen.partition.local.late import with_late_sums
from shardwright.codegen.partition.local.lower import lower
from shardwright.codegen.partition.local.ports import ports_of
from shardwright.codegen.partition.local.prices import Ratings
from shardwright.codegen.partition.local.steps import LocalProgram, tensor_of
from shardwright.codegen.partition.local.work import received
from shardwright.ir.mesh import Mesh
from shardwright.ir.program import Op, Program, ops_of


def as_shardy(program: Program, mesh: Mesh, ratings: Ratings) -> LocalProgram:
    """Return the steps of one device for a propagated program."""
    axes = cut_axes(program, mesh, ratings.topology)
    return min(propagated_plans(program, axes, ratings), key=received)


def propagated_plans(program: Program, axes: CutAxes, ratings: Ratings) -> Iterator[LocalProgram]:
    """Yield a plan for each list of `propagated_layouts`."""
    for layouts in propagated_layouts(program, axes):
        known = dict(propagated_choices(program, axes, layouts))
        made = with_late_sums(program, axes, known, layouts)
        choice, needed = with_broadcasts_as_needed(program, axes, *made)
        yield lower(program, axes, choice, needed, ratings.regather)


def propagated_layouts(program: Program, axes: CutAxes) -> Iterator[list[LocalLayout]]:
    """Yield the propagated layouts of all values. Dimensions that axes do not divide are not split.
    If there are any, also yield layouts in which these axes split another dimension, except in
    arguments and constraints."""
    values = program.values
    layouts = [axes.layout(value.sharding, value.shape) for value in values]
    yield layouts
    bound = {v for op in ops_of(program.body) if op.kind == "constrain" for v in op.results}
    bound.update(program.body.arguments)
    spilled = [
        layout if number in bound else axes.spilled(value.sharding, value.shape)
        for number, (value, layout) in enumerate(zip(values, layouts, strict=True))
    ]
    if spilled != layouts:
        yield spilled


def propagated_choices(
    program: Program, axes: CutAxes, layouts: list[LocalLayout]
) -> Iterator[tuple[int, FactorAxes]]:
    """Yield the split of every op, and of every port of ops with bodies, each with the op's first
    result."""
    chosen: dict[tuple[Splits, tuple[LocalLayout, ...]], FactorAxes] = {}
    for op in ops_of(program.body):
        if is_control(op):
            check_manual(op, axes.mesh)
            yield from _of_ports(op, program, axes, layouts)
            continue
        splits = splits_of(op, program.values, axes)
        own = tuple(layouts[v] for v in (*op.operands, *op.results))
        if (splits, own) not in chosen:
            found = candidates(splits, own)
            if op.kind == "constrain":
                found = (splits.along([(1, own[1])]),)
            chosen[splits, own] = _cheapest(splits, found, program, own)
        yield op.results[0], chosen[splits, own]


def _cheapest(
    splits: Splits, found: Sequence[FactorAxes], program: Program, own: Sequence[LocalLayout]
) -> FactorAxes:
    """Return the split that costs least. If it is the split with the fewest pieces, because a sum
    would cost more than to gather its operands, keep what can be kept of the others: no dimension
    of an operand is gathered of which the result is only a part."""
    prices = {split: price(splits, split, program, own) for split in found}
    least = min(prices, key=prices.__getitem__)
    if least != splits.whole or not splits.reducing:
        return least
    kept = dict.fromkeys((least, *map(splits.unreduced, found)))
    return min(kept, key=lambda split: price(splits, split, program, own))


def _of_ports(
    op: Op, program: Program, axes: CutAxes, layouts: list[LocalLayout]
) -> Iterator[tuple[int, FactorAxes]]:
    for port in ports_of(op, program.values):
        if port.op.results:
            value = (*port.op.operands, *port.op.results)[port.home]
            splits = splits_of(port.op, program.values, axes)
            yield port.op.results[0], splits.along([(port.home, layouts[value])])


def price(splits: Splits, split: FactorAxes, program: Program, own: Sequence[LocalLayout]) -> float:
    """Return the cost of an op with this split in bytes, including moves from and to the given
    layouts `own` of its operands and results."""
    op, layouts = splits.op, splits.layouts(split)
    count = len(op.operands)
    pairs = (
        *zip(op.operands, own[:count], layouts.operands, strict=True),
        *zip(op.results, layouts.results, own[count:], strict=True),
    )
    return splits.price(split) + sum(
        way((have,), need, tensor_of(program.values[value], splits.axes))[0]
        for value, have, need in pairs
    )
