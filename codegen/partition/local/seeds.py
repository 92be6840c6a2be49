"""Where the search of `cheapest` starts: splits of all ops that follow one idea each.

What is said of arguments goes through the program op by op. Of the tensors that an op takes those
count first that come from the last argument (tokens, a batch), or from the first one, or those that
are arguments themselves (weights). Axes that an op leaves whole then split what it gives
(`after`: a sequence, where weights are split), or what counts first before the others are asked
(`before`: a batch over all axes).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from shardwright.codegen.partition.local.assign import FactorAxes, Splits
from shardwright.codegen.partition.local.axes import CutAxes
from shardwright.codegen.partition.local.costs import Costs
from shardwright.codegen.partition.local.layout import LocalLayout, Names
from shardwright.codegen.partition.local.linear import with_terms

Filled = Literal["not", "after", "before"]
"""When axes that are left split what is there."""


def seeds(costs: Costs, bound: Mapping[int, FactorAxes]) -> Iterator[Callable[[], None]]:
    """Yield what splits all ops, `bound` ops as they are."""
    last, first = (_ranks(costs, sign) for sign in (1, -1))
    fills: tuple[Filled, ...] = ("not", "after", "before")
    for ranks in (last, first, [-rank for rank in last]):
        for filled in fills:
            yield _Seed(costs, bound, ranks, filled).start


def _ranks(costs: Costs, sign: int) -> list[float]:
    """Return how much each wire counts: as much as the argument that counts most of those that it
    comes from."""
    ranks = [-math.inf] * len(costs.wires)
    for place, wire in enumerate(costs.arguments):
        ranks[wire] = sign * place
    for _ in range(2):  # what loops and equal stretches carry comes from what is later too
        for op, touched in zip(costs.ops, costs.touched, strict=True):
            count = len(op.operands)
            most = max((ranks[w] for w, place in touched if place < count), default=-math.inf)
            for wire, place in touched:
                if place >= count:
                    ranks[wire] = max(ranks[wire], most)
    return ranks


@dataclass(frozen=True)
class _Seed:
    """One idea; `ranks`: how much each wire counts."""

    costs: Costs
    bound: Mapping[int, FactorAxes]
    ranks: list[float]
    filled: Filled

    def start(self) -> None:
        """Split every op by what it takes; then what takes nothing by what its results are for."""
        costs = self.costs
        for number in range(len(costs.ops)):
            costs.choose(number, self.bound.get(number))
        for number in range(len(costs.ops)):
            if number not in self.bound:
                costs.choose(number, self._split(number))
        for number in reversed(range(len(costs.ops))):
            if number not in self.bound and self._is_open(number):
                costs.choose(number, self._asked(number))

    def _split(self, number: int) -> FactorAxes:
        """Return the split of an op that the tensors that it takes ask for, those first that count
        most."""
        costs, splits = self.costs, self.costs.splits[number]
        taken = self._taken(number)
        homes = {place: costs.layout(wire) for place, wire in taken.items()}
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

    def _taken(self, number: int) -> dict[int, int]:
        """Return for each operand of an op a wire whose layout is chosen: of one among equal
        stretches, that of the first one."""
        found: dict[int, int] = {}
        for wire, place in self.costs.touched[number]:
            made_by = self.costs.wires[wire].made_by
            known = made_by is None or self.costs.split[made_by[0]] is not None
            if known and place < len(self.costs.operands[number]):
                found.setdefault(place, wire)
        return found

    def _is_open(self, number: int) -> bool:
        """Return whether an op takes nothing that is split."""
        split = self.costs.split[number]
        return split is None or not any(split.factors)

    def _asked(self, number: int) -> FactorAxes:
        """Return the split that the first use of the results of an op asks for."""
        costs, count = self.costs, len(self.costs.ops[number].operands)
        needs = (
            (place, need)
            for wire, place in costs.touched[number]
            if place >= count
            for need in costs.needs(wire)[:1]
        )
        return costs.splits[number].along(needs)


def _with_all_axes(splits: Splits, split: FactorAxes, barred: Names) -> FactorAxes:
    """Return a split in which axes that are left, but for barred ones, split the first result."""
    layouts = splits.layouts(split)
    if not layouts.results:
        return split
    count = len(layouts.operands)
    split_by = (name for names in split.factors for name in names)
    taken = (*split_by, *split.partial, *barred)
    wider = _filled(layouts.results[0], splits.shapes[count], taken, splits.axes)
    if wider == layouts.results[0]:
        return split
    own = enumerate((*layouts.operands, *layouts.results))
    return splits.along(((count, wider), *own))


def _filled(
    layout: LocalLayout, shape: tuple[int, ...], taken: Names, axes: CutAxes
) -> LocalLayout:
    """Return a layout whose first dimensions are split along all axes that are not taken."""
    for name in (name for name, size in axes.pieces if size > 1):
        if name in (*taken, *layout.used, *layout.partial):
            continue
        for dim, extent in enumerate(shape):
            names = (*layout.dims[dim], name)
            if extent and extent % axes.parts_of(names) == 0:
                layout = layout.with_dim(dim, names)
                break
    return layout
