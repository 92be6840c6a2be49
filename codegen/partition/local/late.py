"""Sums reduced over devices once: partial sums are added first, and then their total is reduced.

A global norm adds one sum per gradient. If each sum is reduced by itself, devices communicate once
per gradient; if each device first adds its partial sums, they communicate once. Values in a chain
of linear ops stay partial if devices then receive fewer bytes, or as many bytes in fewer
collectives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from shardwright.codegen.moves.paths import way
from shardwright.codegen.ops.layout import LocalLayout
from shardwright.codegen.ops.table import kind_of
from shardwright.codegen.partition.local.assign import FactorAxes, Splits, splits_of
from shardwright.codegen.partition.local.axes import CutAxes
from shardwright.codegen.partition.local.control import is_control
from shardwright.codegen.partition.local.linear import carriers_of, with_terms
from shardwright.codegen.partition.local.lower import Choice
from shardwright.codegen.partition.local.steps import tensor_of
from shardwright.ir.program import Op, Program, ops_of

FIXED = frozenset({"constant", "broadcast_in_dim", "convert_element_type"})
"""Ops whose results depend on no argument if their operands do not."""


@dataclass(frozen=True)
class _SumForm:
    """One way to compute a value. `layout`: the value's layout after the op; `price`: the price of
    all moves needed to compute it; `late`: the operands that the op takes as partial sums."""

    split: FactorAxes
    layout: LocalLayout
    price: float
    late: tuple[int, ...] = ()


def with_late_sums(
    program: Program, axes: CutAxes, choice: Choice, layouts: Sequence[LocalLayout]
) -> tuple[Choice, tuple[LocalLayout | None, ...]]:
    """Return the split of each op, and the layout that each value must have, or None for a value
    that stays partial. `choice`, `layouts`: the splits and layouts without late sums."""
    sums = _Late(program, axes, choice, layouts)
    ops = [op for op in ops_of(program.body) if not is_control(op)]
    for op in ops:
        sums.follow(op)
    return sums.chosen(ops)


@dataclass
class _Late:
    """Follow partial sums through a program. `whole`, `partial`: the cheapest way to compute each
    value of a chain, reduced to its layout or still partial; `fixed`: the values that depend on no
    argument."""

    program: Program
    axes: CutAxes
    choice: Choice
    layouts: Sequence[LocalLayout]
    whole: dict[int, _SumForm] = field(default_factory=dict)
    partial: dict[int, _SumForm] = field(default_factory=dict)
    fixed: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.uses = Counter(self.program.body.results)
        for op in ops_of(self.program.body):
            self.uses.update((*op.operands, *(v for body in op.bodies for v in body.results)))

    def follow(self, op: Op) -> None:
        value = op.results[0]
        if op.kind in FIXED and self.fixed.issuperset(op.operands):
            self.fixed.add(value)
        splits = splits_of(op, self.program.values, self.axes)
        forms = [self._known(splits, op), *self._added(splits, op)]
        partial = [form for form in forms if form.layout.partial and form.layout.operator == "sum"]
        if len(op.results) > 1 or not partial:
            return
        if self.uses[value] == 1:
            self.partial[value] = min(partial, key=_by_price)
        settled = (
            replace(form, price=form.price + self._move(value, form.layout, self.layouts[value]))
            for form in forms
        )
        self.whole[value] = min(settled, key=_by_price)

    def _known(self, splits: Splits, op: Op) -> _SumForm:
        split = self.choice[op.results[0]]
        layouts = splits.layouts(split)
        price = _inside(splits, split) + sum(
            self._settled(value, need)
            for value, need in zip(op.operands, layouts.operands, strict=True)
        )
        return _SumForm(split, layouts.results[0], price)

    def _added(self, splits: Splits, op: Op) -> Iterator[_SumForm]:
        late = [place for place, value in enumerate(op.operands) if value in self.partial]
        if not late or not self._is_linear(op, late):
            return
        have = [
            self.partial[value].layout if value in self.partial else self.layouts[value]
            for value in op.operands
        ]
        for first in late:
            along = splits.along(((first, have[first]), *enumerate(have)))
            for split in with_terms(splits, along, have, self.program.values):
                yield self._priced(splits, op, split)

    def _is_linear(self, op: Op, late: Sequence[int]) -> bool:
        """Return whether an op may take the operands `late` as partial sums. A product may only if
        one of its operands depends on no argument: otherwise it may be a square, and a square
        computed from partial sums may be negative."""
        if kind_of(op.kind).terms == "either" and not self.fixed.intersection(op.operands):
            return False
        return any({*late} & {*places} for places in carriers_of(op, self.program.values))

    def _priced(self, splits: Splits, op: Op, split: FactorAxes) -> _SumForm:
        layouts = splits.layouts(split)
        price, late = _inside(splits, split), []
        for place, (value, need) in enumerate(zip(op.operands, layouts.operands, strict=True)):
            settled = self._settled(value, need)
            if value in self.partial:
                own = self.partial[value]
                added = own.price + self._move(value, own.layout, need)
                if added < settled:
                    late.append(place)
                settled = min(added, settled)
            price += settled
        return _SumForm(split, layouts.results[0], price, tuple(late))

    def _settled(self, value: int, need: LocalLayout) -> float:
        before = self.whole[value].price if value in self.partial else 0.0
        return before + self._move(value, self.layouts[value], need)

    def _move(self, value: int, have: LocalLayout, need: LocalLayout) -> float:
        return way((have,), need, tensor_of(self.program.values[value], self.axes))[0]

    def chosen(self, ops: Sequence[Op]) -> tuple[Choice, tuple[LocalLayout | None, ...]]:
        choice, layouts = dict(self.choice), list[LocalLayout | None](self.layouts)
        for op in reversed(ops):
            value = op.results[0]
            form = (self.whole if layouts[value] else self.partial).get(value)
            if form is not None:
                choice[value] = form.split
                for place in form.late:
                    layouts[op.operands[place]] = None
        return choice, tuple(layouts)


def _inside(splits: Splits, split: FactorAxes) -> float:
    return splits.price(split) - splits.work(split)


def _by_price(form: _SumForm) -> float:
    return form.price
