"""The price of a program whose ops are split in a certain way, kept up as splits change."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable, Mapping

from shardwright.codegen.partition.local.assign import FactorAxes, OpLayouts, Splits
from shardwright.codegen.partition.local.axes import CutAxes
from shardwright.codegen.partition.local.control import control_ends, is_control
from shardwright.codegen.partition.local.layout import LocalLayout
from shardwright.codegen.partition.local.moves import Tensor, way
from shardwright.codegen.partition.local.steps import item_bytes
from shardwright.ir.program import Body, Op, Program

LATER = 0.5
"""Bytes by which an op that passes terms on is cheaper: a sum is made as late as it can be."""


@functools.cache
def price_of_uses(home: LocalLayout, needs: tuple[LocalLayout, ...], tensor: Tensor) -> float:
    """Return the price of a value that is made in one layout and used in others, in order; what is
    made on the way is kept."""
    known = [home]
    total = 0.0
    for need in needs:
        if need not in known:
            price, _, changes = way(tuple(known), need, tensor)
            total += price
            known += (change.layout for change in changes if change.layout not in known)
    return total


class Costs:
    """The splits of all ops and what they cost; values and ops by number."""

    def __init__(self, program: Program, axes: CutAxes, carried: Mapping[int, LocalLayout]) -> None:
        self.program, self.axes, self.values = program, axes, program.values
        self.carried = carried
        self.ops: list[Op] = []
        self.splits: list[Splits] = []
        self.alike: dict[tuple[object, ...], Splits] = {}
        self.times: list[int] = []
        self.made_by: dict[int, tuple[int, int]] = {}  # value -> op, which of its results
        self.used_by: dict[int, list[tuple[int, int] | LocalLayout]] = defaultdict(list)
        self.home: dict[int, LocalLayout] = {}  # of values that no op makes in a layout of its own
        self.often: dict[int, int] = {}
        self.tensors = [
            Tensor(value.shape, item_bytes(value.dtype), axes.pieces) for value in self.values
        ]
        results = (
            axes.layout(sharding, self.values[v].shape)
            for sharding, v in zip(program.results, program.body.results, strict=True)
        )
        arguments = map(self.propagated, program.body.arguments)
        self._body(program.body, tuple(arguments), tuple(results), 1)
        self.split: list[FactorAxes | None] = [None] * len(self.ops)  # None: not chosen yet
        self.layouts: list[OpLayouts | None] = [None] * len(self.ops)

    def choose(self, number: int, split: FactorAxes | None) -> None:
        """Split an op in a way, or leave it open."""
        self.split[number] = split
        self.layouts[number] = None if split is None else self.splits[number].layouts(split)

    def propagated(self, value: int) -> LocalLayout:
        """Return the layout of a value as it was propagated, or as a loop carries it."""
        own = self.values[value]
        return self.carried.get(value) or self.axes.layout(own.sharding, own.shape)

    def _body(
        self,
        body: Body,
        arguments: tuple[LocalLayout, ...],
        results: tuple[LocalLayout, ...],
        times: int,
    ) -> None:
        self.home.update(zip(body.arguments, arguments, strict=True))
        self.often.update(dict.fromkeys(body.arguments, times))
        for op in body.ops:
            self.often.update(dict.fromkeys(op.results, times))
            if is_control(op):
                self._control(op, times)
                continue
            number = len(self.ops)
            self.ops.append(op)
            self.splits.append(self._splits(op))
            self.times.append(times)
            self.made_by.update((v, (number, place)) for place, v in enumerate(op.results))
            for place, value in enumerate(op.operands):
                self.used_by[value].append((number, place))
        for value, layout in zip(body.results, results, strict=True):
            self.used_by[value].append(layout)

    def _splits(self, op: Op) -> Splits:
        """Return the ways to split an op, the same ones for ops that are alike."""
        tensors = (self.values[v] for v in (*op.operands, *op.results))
        key = (op.kind, op.params, op.rule, tuple((v.shape, v.dtype) for v in tensors))
        if key not in self.alike:
            self.alike[key] = Splits(op, self.values, self.axes)
        return self.alike[key]

    def _control(self, op: Op, times: int) -> None:
        ends = control_ends(op, self.propagated)
        for value, layout in zip(op.operands, ends.operands, strict=True):
            self.used_by[value].append(layout)
        self.home.update(zip(op.results, ends.results, strict=True))
        length = op.integers("length")[0] if op.kind == "scan" else 1
        for body, layouts in zip(op.bodies, ends.bodies, strict=True):
            self._body(body, *layouts, times * length)

    def layout(self, value: int) -> LocalLayout:
        """Return the layout that a value is made in; as propagated, where that is not chosen."""
        if value in self.home:
            return self.home[value]
        number, place = self.made_by[value]
        layouts = self.layouts[number]
        return self.propagated(value) if layouts is None else layouts.results[place]

    def needs(self, value: int) -> tuple[LocalLayout, ...]:
        """Return the layouts that a value is used in, in order."""
        found = []
        for use in self.used_by[value]:
            if isinstance(use, LocalLayout):
                found.append(use)
                continue
            layouts = self.layouts[use[0]]
            if layouts is not None:
                found.append(layouts.operands[use[1]])
        return tuple(found)

    def of_value(self, value: int) -> float:
        """Return what the moves of a value cost."""
        price = price_of_uses(self.layout(value), self.needs(value), self.tensors[value])
        return price * self.often[value]

    def of_op(self, number: int) -> float:
        """Return what an op costs to compute; a little less where it passes terms on, since a sum
        that is made later is made once for more."""
        split = self.split[number]
        if split is None:
            return 0.0
        work = self.splits[number].price(split)
        return (work - LATER * bool(split.partial)) * self.times[number]

    def around(self, numbers: Iterable[int]) -> float:
        """Return what ops cost together with the values that they take and give."""
        ops = dict.fromkeys(numbers)
        values = {v for n in ops for v in (*self.ops[n].operands, *self.ops[n].results)}
        return sum(map(self.of_op, ops)) + sum(map(self.of_value, values))

    @property
    def total(self) -> float:
        """The price of the program."""
        return self.around(range(len(self.ops)))
