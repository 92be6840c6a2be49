"""A local search over the splits of a program's ops, which lowers the cost of the program.

It changes one op at a time, then an op together with the neighbours that adopt its sharding. When
no such change helps, it splits regions of elementwise ops along the axes of a sum before them, so
that a reduce-scatter replaces the all-reduce.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import replace
from functools import partial

from shardwright.codegen.moves.paths import A_COLLECTIVE
from shardwright.codegen.ops.layout import LocalLayout
from shardwright.codegen.ops.table import POINTWISE
from shardwright.codegen.partition.local.assign import FactorAxes
from shardwright.codegen.partition.local.costs import TERM, Costs
from shardwright.codegen.partition.local.linear import with_terms
from shardwright.codegen.partition.local.lower import Choice
from shardwright.codegen.partition.local.ports import PORT
from shardwright.codegen.partition.local.priced_plan import PricedPlan
from shardwright.codegen.partition.local.small import small_updates
from shardwright.codegen.partition.local.squares import Squares

SWEEPS = 8
"""Greatest number of sweeps over all ops."""
REACH = 60
"""Greatest number of ops that change together."""
WIDE = 2000
"""If a program has fewer ops than this, changes also propagate through ops that are not in
`PASSING`, such as matmuls."""
PASSING = POINTWISE | {"reduce_sum", PORT}
"""Ops that adopt the sharding of a neighbour."""
EXTRA = 0.01
"""The greatest share by which a plan may cost more to receive fewer bytes: bytes are exact, but the
cost of computation is an estimate."""
HALF = 0.5
"""The share of its cost with which computation counts in a search for plans that receive less."""
TIE = 0.0001
"""Costs that differ by less than this share are equal; of two plans with equal costs the one that
receives less is used."""
LEAST = 0.01
"""Smallest gain, in bytes, for which the search changes anything."""
START = 2.0**16
"""The bytes that a device could receive while a collective starts."""


class PriceSearch:
    """A local search over the splits of a program. The ops in `bound` keep their splits."""

    def __init__(self, costs: Costs, bound: dict[int, FactorAxes]) -> None:
        self.costs, self.bound, self.squares = costs, bound, Squares(costs)
        self.whole: set[int] = set()  # ops that must not take partial operands
        self.clock = 0
        self.changed = [0] * len(costs.ops)  # the time at which an op or a neighbour last changed
        self.visited: dict[tuple[int, str], int] = {}
        self.near = [
            tuple(dict.fromkeys((number, *(beside for beside, _ in self._beside(number)))))
            for number in range(len(costs.ops))
        ]  # each op and its neighbours
        self.known: dict[Hashable, FactorAxes | None] = {}

    def plan(self, start: Callable[[], None], improve: Callable[[], None]) -> PricedPlan:
        self.visited.clear()
        self.whole.clear()
        start()
        improve()
        while self.keep_whole(self.squares.found()):
            improve()
        return PricedPlan(self.costs.total, self.costs.received, self.costs.choice)

    def rounded_less(self, found: PricedPlan) -> Choice:
        """Return the splits of a plan with fewer reduced values as terms of partial sums (see
        `TERM`); return those of `found` if the new plan would receive more bytes."""
        self.costs.term = TERM
        self.known.clear()
        changed = self.plan(partial(self.start, found.choice), self.settle)
        self.costs.term = 0.0
        self.known.clear()
        return changed.choice if changed.received < found.received + LEAST else found.choice

    def improved(self, found: PricedPlan) -> PricedPlan:
        """Return a plan improved, and improved again with computation counted half if it then
        receives less for no higher cost."""
        found = self.plan(partial(self.start, found.choice), self.improve)
        self.count_computation(HALF)
        begun = self.plan(partial(self.start, found.choice), self.improve)
        self.count_computation(1.0)
        less = self.plan(partial(self.start, begun.choice), self.improve)
        is_cheap = less.price <= (1 + TIE) * found.price
        return less if is_cheap and less.received < found.received else found

    def count_computation(self, share: float) -> None:
        self.costs.share = share
        self.known.clear()

    def received_less(self, found: Choice) -> Choice:
        """Return the splits of a plan that computes small updates whole where devices then receive
        fewer bytes, and the cost rises by at most the share `EXTRA` in all."""
        costs = self.costs
        self.start(found)
        left = EXTRA * costs.total
        for new in small_updates(costs):
            if not self.bound.keys().isdisjoint(new):
                continue
            old = {number: costs.split[number] for number in new}
            wires = {wire for number in new for wire, _ in costs.touched[number]}
            price, moved = costs.around(old), sum(map(costs.moved, wires))
            self._put(dict(new))
            more = costs.around(old) - price
            if more <= left and sum(map(costs.moved, wires)) < moved - A_COLLECTIVE:
                left -= more
            else:
                self._put(old)
        return costs.choice

    def start(self, known: Choice) -> None:
        for number, op in enumerate(self.costs.ops):
            self.costs.choose(number, known[op.results[0]])

    def greedy(self) -> None:
        for number in range(len(self.costs.ops)):
            self.costs.choose(number, None)
        for number in range(len(self.costs.ops)):
            self._settle(number)

    def improve(self) -> None:
        """Change splits as long as this lowers the cost, in at most `SWEEPS` sweeps."""
        forward = range(len(self.costs.ops))
        for _ in range(SWEEPS):
            before = self.costs.total
            self.settle()
            for number in forward:
                if self._is_due(number, "wave"):
                    for split in self._candidates(number):
                        self._wave(number, split)
            for wire in range(len(self.costs.wires)):
                self._sum_early(wire)
            if self.costs.total > before - 1:
                return

    def settle(self) -> None:
        forward = range(len(self.costs.ops))
        for number in (*forward, *reversed(forward)):
            if self._is_due(number, "alone"):
                self._settle(number)

    def _is_due(self, number: int, what: str) -> bool:
        """Return whether an op or a neighbour has changed since the change `what` was last tried on
        the op, and record that it is tried now."""
        due = self.changed[number] >= self.visited.get((number, what), -1)
        self.clock += 1
        self.visited[number, what] = self.clock
        return due

    def _note(self, number: int) -> None:
        self.clock += 1
        self.changed[number] = self.clock
        for beside in self.near[number]:
            self.changed[beside] = self.clock

    def _settle(self, number: int) -> None:
        best = self._best(number)
        if best != self.costs.split[number]:
            self.costs.choose(number, best)
            self._note(number)

    def _best(self, number: int) -> FactorAxes | None:
        """Return an op's cheapest split while all other ops keep theirs. The result is cached by
        the splits of the op and its neighbours, which often recur."""
        around = (self.costs.split[near] for near in self.near[number])
        state = number, number in self.whole, *around
        if state not in self.known:
            self.known[state] = self._cheapest(number)
        return self.known[state]

    def _cheapest(self, number: int) -> FactorAxes | None:
        costs, old = self.costs, self.costs.split[number]
        prices = {} if old is None else {old: costs.around((number,)) - LEAST}
        for split in self._candidates(number):
            costs.choose(number, split)
            prices.setdefault(split, costs.around((number,)))
        costs.choose(number, old)
        return min(prices, key=lambda split: prices[split])

    def _candidates(self, number: int) -> tuple[FactorAxes, ...]:
        if number in self.bound:
            return (self.bound[number],)
        costs = self.costs
        splits = costs.splits[number]
        homes = list(map(costs.layout, costs.operands[number]))
        count = len(homes)
        around = [*enumerate(homes)]
        first: dict[tuple[int, LocalLayout], None] = {}
        for wire, place in costs.touched[number]:
            if place < count:
                first[place, costs.layout(wire)] = None
            asked = (*costs.needs(wire), costs.wires[wire].propagated)
            first.update(((place, layout), None) for layout in asked)
            around += [(place, layout) for layout in asked[:1] if place >= count]
        found = {splits.along((each, *around)): None for each in first}
        found.update((splits.along((each,)), None) for each in first)
        found[splits.whole] = None
        for split in () if number in self.whole else tuple(found):
            found.update((s, None) for s in with_terms(splits, split, homes, costs.values))
        return tuple(found)

    def spread(self) -> None:
        """Replace all-reduces by reduce-scatters, and improve the splits again, as long as this
        lowers the cost."""
        for _ in range(SWEEPS):
            before = self.costs.total
            for number in range(len(self.costs.ops)):
                if self._is_due(number, "reduce-scatter"):
                    for split in self._scattered(number):
                        self._wave(number, split, START * self.costs.times[number])
            if self.costs.total > before - 1:
                return
            self.improve()

    def _scattered(self, number: int) -> Iterator[FactorAxes]:
        """Yield the splits of an op that takes a sum as a reduce-scatter leaves it, where an
        all-reduce would let every device compute the same."""
        costs = self.costs
        if number in self.bound:
            return
        splits = costs.splits[number]
        for wire, place in costs.touched[number]:
            if place < len(costs.operands[number]):
                for each in costs.layout(wire).scattered(splits.shapes[place], costs.axes.sizes):
                    yield splits.along(((place, each),))

    def _wave(self, number: int, split: FactorAxes, least: float = LEAST) -> None:
        """Change an op and let its neighbours follow. Keep the changes if they lower the cost by
        more than `least`; otherwise undo them."""
        costs = self.costs
        if split == costs.split[number]:
            return
        old = {number: costs.split[number]}
        costs.choose(number, split)
        queue = deque(self._beside(number))
        while queue and len(old) < REACH:
            beside, wire = queue.popleft()
            if beside in old or beside in self.bound:
                continue
            follows = self._following(beside, wire)
            if follows == costs.split[beside]:
                continue
            old[beside] = costs.split[beside]
            costs.choose(beside, follows)
            queue.extend(self._beside(beside))
        self._keep_if_cheaper(old, least)

    def keep_whole(self, numbers: Iterable[int]) -> bool:
        """Forbid the given ops to take partial operands. Return whether this is new for any of
        them."""
        new = [number for number in numbers if number not in self.whole]
        self.whole.update(new)
        for number in new:
            self.costs.choose(number, _of_sum(self.costs.split[number]))
            self._note(number)
        return bool(new)

    def _sum_early(self, wire: int) -> None:
        """Reduce a partial value before all its uses, if one use needs the reduced value anyway and
        this lowers the cost. Changing one op at a time would lower the cost only with the last
        change."""
        costs = self.costs
        needs = costs.needs(wire)
        terms = [bool(need.partial) for need in needs]
        if not costs.layout(wire).partial or all(terms) or not any(terms):
            return
        old: dict[int, FactorAxes | None] = {}
        queue = deque([wire])
        while queue and len(old) < REACH:
            for number in self._carrying(queue.popleft()):
                if number not in old and number not in self.bound:
                    old[number] = costs.split[number]
                    costs.choose(number, _of_sum(old[number]))
                    count = len(costs.operands[number])
                    queue += (each for each, place in costs.touched[number] if place >= count)
        self._keep_if_cheaper(old)

    def _carrying(self, wire: int) -> Iterator[int]:
        for use in self.costs.wires[wire].uses:
            if not isinstance(use, LocalLayout):
                split = self.costs.split[use[0]]
                if split is not None and use[1] in split.carriers:
                    yield use[0]

    def _keep_if_cheaper(self, old: dict[int, FactorAxes | None], least: float = LEAST) -> None:
        costs = self.costs
        new = {changed: costs.split[changed] for changed in old}
        after = costs.around(old)
        self._put(old)
        if after < costs.around(old) - least:
            self._put(new)
            for changed in new:
                self._note(changed)

    def _put(self, splits: dict[int, FactorAxes | None]) -> None:
        for number, split in splits.items():
            self.costs.choose(number, split)

    def _beside(self, number: int) -> Iterator[tuple[int, int]]:
        costs = self.costs
        for wire, _ in costs.touched[number]:
            own = costs.wires[wire]
            ends = () if own.made_by is None else (own.made_by,)
            for end in (*ends, *own.uses):
                if not isinstance(end, LocalLayout) and end[0] != number:
                    yield end[0], wire

    def _following(self, number: int, wire: int) -> FactorAxes | None:
        costs = self.costs
        op, splits = costs.ops[number], costs.splits[number]
        if op.kind not in PASSING:
            wide = len(costs.ops) < WIDE
            return self._best(number) if wide else costs.split[number]
        place = next(place for each, place in costs.touched[number] if each == wire)
        layout, own = costs.layout(wire), costs.layouts[number]
        if place >= len(op.operands):
            layout = next(iter(costs.needs(wire)), layout)
        if own is not None and (*own.operands, *own.results)[place] == layout:
            return costs.split[number]  # the op already agrees: keep its split
        if number in costs.of_no_argument:
            return splits.along(((place, layout),))  # its operands follow at no cost
        homes = list(map(costs.layout, costs.operands[number]))
        split = splits.along(((place, layout), *enumerate(homes)))
        if layout.partial and place < len(op.operands) and number not in self.whole:
            return next(iter(with_terms(splits, split, homes, costs.values)), split)
        return split


def _of_sum(split: FactorAxes | None) -> FactorAxes | None:
    """Return the same split, but with reduced values in place of partial operands."""
    return None if split is None else replace(split, partial=(), carriers=())
