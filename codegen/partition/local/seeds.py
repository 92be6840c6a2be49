"""Seeds: plans from which the search of `cheapest` starts. Each splits all ops by one rule.

The given shardings spread through the program, op by op. If the operands of an op disagree, the
operand of the highest rank takes precedence. A rank favours operands that depend on late arguments
(tokens, a batch) or on early ones (weights). Axes that split no operand may in addition split the
result of an op (`after`), or, before other operands are considered, the operand of the highest rank
(`before`: a batch over all axes).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from shardwright.codegen.ops.layout import LocalLayout, Names
from shardwright.codegen.partition.local.assign import FactorAxes, Splits
from shardwright.codegen.partition.local.axes import CutAxes
from shardwright.codegen.partition.local.costs import Costs
from shardwright.codegen.partition.local.linear import with_terms

Filled = Literal["not", "after", "before"]
"""Whether, and when, unused axes split a tensor of an op."""


def seeds(costs: Costs, bound: Mapping[int, FactorAxes]) -> Iterator[Callable[[], None]]:
    """Yield functions that each split all ops by one rule. The ops in `bound` keep their splits."""
    last, first = (_ranks(costs, sign) for sign in (1, -1))
    fills: tuple[Filled, ...] = ("not", "after", "before")
    for ranks in (last, first, [-rank for rank in last]):
        for filled in fills:
            yield _Seed(costs, bound, ranks, filled).start


def _ranks(costs: Costs, sign: int) -> list[float]:
    """Return the rank of each wire: the highest rank of the arguments on which it depends. The rank
    of an argument is its index times `sign`."""
    ranks = [-math.inf] * len(costs.wires)
    for place, wire in enumerate(costs.arguments):
        ranks[wire] = sign * place
    for _ in range(2):  # repeated, because loops carry later values back
        for op, touched in zip(costs.ops, costs.touched, strict=True):
            count = len(op.operands)
            most = max((ranks[w] for w, place in touched if place < count), default=-math.inf)
            for wire, place in touched:
                if place >= count:
                    ranks[wire] = max(ranks[wire], most)
    return ranks


@dataclass(frozen=True)
class _Seed:
    """One seed. `ranks`: the rank of each wire."""

    costs: Costs
    bound: Mapping[int, FactorAxes]
    ranks: list[float]
    filled: Filled

    def start(self) -> None:
        """Split every op as its operands suggest. Then split the remaining ops as the users of
        their results suggest."""
        costs = self.costs
        for number in range(len(costs.ops)):
            costs.choose(number, self.bound.get(number))
        free = [number for number in range(len(costs.ops)) if number not in self.bound]
        for number in free:
            costs.choose(number, self._split(number))
        for number in reversed(free):
            split = costs.split[number]
            if split is None or not any(split.factors):
                costs.choose(number, self._asked(number))

    def _split(self, number: int) -> FactorAxes:
        costs, splits = self.costs, self.costs.splits[number]
        homes = self._homes(number)
        asked = sorted(homes.items(), key=lambda each: -self._rank(number, each[0]))
        if asked and self.filled == "before":
            place, home = asked[0]
            asked[0] = place, _filled(home, splits.shapes[place], costs.barred[number], costs.axes)
        split = splits.along(asked)
        if self.filled == "after":
            split = _with_all_axes(splits, split, costs.barred[number])
        if any(home.partial for home in homes.values()):
            every = [
                homes.get(place, LocalLayout(((),) * len(splits.shapes[place])))
                for place in range(len(costs.operands[number]))
            ]
            return next(iter(with_terms(splits, split, every, costs.values)), split)
        return split

    def _rank(self, number: int, place: int) -> float:
        return max(self.ranks[w] for w, own in self.costs.touched[number] if own == place)

    def _homes(self, number: int) -> dict[int, LocalLayout]:
        """Return the layouts of the operands that are already chosen, by index. In repeated
        stretches, the first copy counts."""
        costs, found = self.costs, dict[int, LocalLayout]()
        for wire, place in costs.touched[number]:
            made_by = costs.wires[wire].made_by
            known = made_by is None or costs.split[made_by[0]] is not None
            if known and place < len(costs.operands[number]):
                found.setdefault(place, costs.layout(wire))
        return found

    def _asked(self, number: int) -> FactorAxes:
        costs, count = self.costs, len(self.costs.ops[number].operands)
        needs = (
            (place, need)
            for wire, place in costs.touched[number]
            if place >= count
            for need in costs.needs(wire)[:1]
        )
        return costs.splits[number].along(needs)


def _with_all_axes(splits: Splits, split: FactorAxes, barred: Names) -> FactorAxes:
    """Return a split in which unused axes, except `barred` ones, split the first result."""
    layouts = splits.layouts(split)
    if not layouts.results:
        return split
    count = len(layouts.operands)
    taken = (*(name for names in split.factors for name in names), *split.partial, *barred)
    wider = _filled(layouts.results[0], splits.shapes[count], taken, splits.axes)
    own = enumerate((*layouts.operands, *layouts.results))
    return split if wider == layouts.results[0] else splits.along(((count, wider), *own))


def _filled(
    layout: LocalLayout, shape: tuple[int, ...], taken: Names, axes: CutAxes
) -> LocalLayout:
    """Return a layout in which each axis that is neither used nor `taken` splits the first
    dimension that it divides."""
    for name in (name for name, size in axes.pieces if size > 1):
        if name in (*taken, *layout.used, *layout.partial):
            continue
        for dim, extent in enumerate(shape):
            names = (*layout.dims[dim], name)
            if extent and extent % axes.parts_of(names) == 0:
                layout = layout.with_dim(dim, names)
                break
    return layout
