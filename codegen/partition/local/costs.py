"""The cost of a program for given splits of its ops, updated incrementally."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shardwright.codegen.moves.paths import Tensor, way
from shardwright.codegen.ops.layout import LocalLayout, Names
from shardwright.codegen.ops.table import POINTWISE
from shardwright.codegen.partition.local.assign import FactorAxes, OpLayouts, Splits, splits_of
from shardwright.codegen.partition.local.axes import CutAxes
from shardwright.codegen.partition.local.control import is_control
from shardwright.codegen.partition.local.ports import ports_of
from shardwright.codegen.partition.local.prices import Ratings
from shardwright.codegen.partition.local.repeats import Item, Repeat, repeats
from shardwright.codegen.partition.local.steps import tensor_of
from shardwright.ir.program import Body, Op, Program

LATER = 0.5
"""The bytes subtracted from the cost of an op that takes partial operands, so that of two equally
cheap plans the one that reduces later is preferred."""
TERM = 1.5 * LATER
"""The bytes added to the cost for each reduced value used as a term of a partial sum, so that of
two equally cheap plans the one that reduces the other terms first is preferred. Otherwise a weight
added to the terms of its update would take part in their reduction, which would then round at the
magnitude of the weight."""
FEWEST = 3
"""Stretches of ops that repeat at least this many times are split the same way."""


@functools.cache
def price_of_uses(home: LocalLayout, needs: tuple[LocalLayout, ...], tensor: Tensor) -> float:
    """Return the cost of moving a value from the layout `home` to the layouts that its uses need,
    in order. Intermediate layouts stay available to later moves."""
    known = [home]
    total = 0.0
    for need in needs:
        if need not in known:
            price, _, changes = way(tuple(known), need, tensor)
            total += price
            known += (change.after for change in changes if change.after not in known)
    return total


@dataclass(frozen=True)
class Wire:
    """Corresponding values in all copies of a repeated stretch. They have equal origins and uses,
    so they are split the same way, and each costs the same."""

    tensor: Tensor
    home: LocalLayout | None  # the layout of a value that no op produces
    made_by: tuple[int, int] | None  # op number and result index, None if `home` is given
    uses: tuple[tuple[int, int] | LocalLayout, ...]  # op number and operand index, or a layout
    propagated: LocalLayout
    times: int  # the number of times that each value is produced
    is_argument: bool


class Costs:
    """The splits of all ops and their cost. Ops and wires are given by number.

    Corresponding ops in the copies of a repeated stretch count as one op, with one split.
    """

    def __init__(
        self,
        program: Program,
        axes: CutAxes,
        ratings: Ratings,
    ) -> None:
        self.program, self.axes, self.values = program, axes, program.values
        self.ratings = ratings
        self.ops: list[
            Op
        ] = []  # of equal layers, an op of the second one, because the first may differ
        self.members: list[tuple[Op, ...]] = []
        self.splits: list[Splits] = []
        self.times: list[int] = []  # how often all corresponding ops run, together
        self.barred: list[Names] = []  # axes of the manual computations around each op
        graph = _Graph(self)
        results = (
            axes.layout(sharding, self.values[v].shape)
            for sharding, v in zip(program.results, program.body.results, strict=True)
        )
        arguments = map(self.propagated, program.body.arguments)
        graph.program(tuple(arguments), tuple(results), tied(program, axes))
        self.wires, self.often, number_of = graph.wires()
        self.arguments = tuple(number_of[v] for v in program.body.arguments)
        self.operands = [tuple(number_of[v] for v in op.operands) for op in self.ops]
        self.touched = [
            tuple(
                dict.fromkeys(
                    (number_of[value], place)
                    for op in members
                    for place, value in enumerate((*op.operands, *op.results))
                )
            )
            for members in self.members
        ]  # the wires of each op's tensors, in order
        self.of_no_argument = self._of_no_argument()
        self.share = 1.0  # the fraction of the cost of computation that counts
        self.term = 0.0  # set to TERM once a plan is found; earlier it would hide better plans
        self.split: list[FactorAxes | None] = [None] * len(self.ops)  # None: not chosen yet
        self.layouts: list[OpLayouts | None] = [None] * len(self.ops)

    def choose(self, number: int, split: FactorAxes | None) -> None:
        """Set the split of an op, or remove it if `split` is None."""
        self.split[number] = split
        self.layouts[number] = None if split is None else self.splits[number].layouts(split)

    @property
    def choice(self) -> dict[int, FactorAxes]:
        """The split of each op, by its first result."""
        return {
            op.results[0]: split
            for members, split in zip(self.members, self.split, strict=True)
            for op in members
            if split
        }

    def propagated(self, value: int) -> LocalLayout:
        own = self.values[value]
        return self.axes.layout(own.sharding, own.shape)

    def add(self, members: tuple[Op, ...], times: int, barred: Names) -> int:
        """Add an op that occurs at several places and cannot be split along the axes `barred`.
        Return its number."""
        op = members[min(1, len(members) - 1)]
        self.ops.append(op)
        self.members.append(members)
        self.splits.append(splits_of(op, self.values, self.axes))
        self.times.append(times * len(members))
        self.barred.append(barred)
        return len(self.ops) - 1

    def _of_no_argument(self) -> frozenset[int]:
        """Return the numbers of pointwise ops that depend on no argument, such as the ops of a
        causal mask.

        Their computation is free: compilers repeat it wherever its result is used, and store
        nothing.
        """
        found: set[int] = set()
        for number, op in enumerate(self.ops):
            makers = [self.wires[wire].made_by for wire in self.operands[number]]
            free = op.kind in POINTWISE or op.kind in ("iota", "constant")
            if free and all(maker and maker[0] in found for maker in makers):
                found.add(number)
        return frozenset(found)

    def layout(self, wire: int) -> LocalLayout:
        """Return the layout in which a value is produced or, before a split is chosen, its
        propagated layout."""
        own = self.wires[wire]
        if own.made_by is None:
            return own.home or own.propagated
        number, place = own.made_by
        layouts = self.layouts[number]
        return own.propagated if layouts is None else layouts.results[place]

    def needs(self, wire: int) -> tuple[LocalLayout, ...]:
        """Return the layouts that the uses of a value need, in order."""
        found = []
        for use in self.wires[wire].uses:
            if isinstance(use, LocalLayout):
                found.append(use)
                continue
            layouts = self.layouts[use[0]]
            if layouts is not None:
                found.append(layouts.operands[use[1]])
        return tuple(found)

    def of_wire(self, wire: int) -> float:
        """Return the cost of a wire's values: of moving them to the layouts of their uses, and of
        using them as terms of a partial sum."""
        terms = 0
        if self.term and not self.layout(wire).partial:
            terms = sum(bool(need.partial) for need in self.needs(wire))
        return self.moved(wire) + self.term * terms * self.often[wire]

    def moved(self, wire: int) -> float:
        """Return the cost of moving a wire's values to the layouts of their uses and, if memory is
        scarce, of keeping them there."""
        own, home, needs = self.wires[wire], self.layout(wire), self.needs(wire)
        if own.is_argument and self.ratings.regather:
            price = sum(price_of_uses(home, (need,), own.tensor) for need in needs)
        else:
            price = price_of_uses(home, needs, own.tensor)
        if self.ratings.held:
            layouts = dict.fromkeys((home, *needs))
            price += self.ratings.held * sum(map(own.tensor.bytes, layouts))
        return price * self.often[wire]

    def of_op(self, number: int) -> float:
        """Return the cost of an op in all its runs, 0 before a split is chosen. Partial operands
        lower the cost slightly, because one later reduction may serve several uses."""
        split = self.split[number]
        if split is None:
            return 0.0
        free = 1.0 if number in self.of_no_argument else 1.0 - self.share
        work = self.splits[number].price(split) - free * self.splits[number].work(split)
        return (work - LATER * bool(split.partial)) * self.times[number]

    def around(self, numbers: Iterable[int]) -> float:
        """Return the cost of ops and of the values that they use and produce."""
        ops = dict.fromkeys(numbers)
        wires = {wire for n in ops for wire, _ in self.touched[n]}
        return sum(map(self.of_op, ops)) + sum(map(self.of_wire, wires))

    @property
    def received(self) -> float:
        """The part of the cost that is received bytes."""
        inside = (
            (own.price(split) - own.work(split)) * times
            for own, split, times in zip(self.splits, self.split, self.times, strict=True)
            if split is not None
        )
        return sum(inside) + sum(map(self.moved, range(len(self.wires))))

    @property
    def total(self) -> float:
        return self.around(range(len(self.ops)))


class _Graph:
    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        self.made_by: dict[int, tuple[int, int]] = {}
        self.uses: dict[int, list[tuple[int, int] | LocalLayout]] = defaultdict(list)
        self.home: dict[int, LocalLayout] = {}
        self.times: dict[int, int] = {}

    def program(
        self,
        arguments: tuple[LocalLayout, ...],
        results: tuple[LocalLayout, ...],
        ties: Sequence[Repeat],
    ) -> None:
        """Record the ops and values of a program, and the layouts of its arguments and results.
        `ties`: the repeated stretches whose copies are split the same way."""
        body = self.costs.program.body
        self.home.update(zip(body.arguments, arguments, strict=True))
        self._body(body, 1, (), ties)
        for value, layout in zip(body.results, results, strict=True):
            self.uses[value].append(layout)

    def _body(self, body: Body, times: int, barred: Names, ties: Sequence[Repeat] = ()) -> None:
        """Record the ops and values of a body that runs `times` times, inside manual computations
        over the axes `barred`."""
        self.times.update(dict.fromkeys(body.arguments, times))
        same = _places_tied(ties)
        numbers: dict[int, int] = {}
        for at, op in enumerate(body.ops):
            self.times.update(dict.fromkeys(op.results, times))
            if is_control(op):
                self._control(op, times, barred)
                continue
            places = same.get(at, range(at, at + 1))
            if places[0] not in numbers:
                members = tuple(body.ops[place] for place in places)
                numbers[places[0]] = self.costs.add(members, times, barred)
            self._tensors(op, numbers[places[0]])

    def _tensors(self, op: Op, number: int) -> None:
        self.made_by.update((v, (number, place)) for place, v in enumerate(op.results))
        for place, value in enumerate(op.operands):
            self.uses[value].append((number, place))

    def _control(self, op: Op, times: int, barred: Names) -> None:
        for port in ports_of(op, self.costs.values):
            if port.op.results:
                self._tensors(port.op, self.costs.add((port.op,), times, barred))
            else:
                self.uses[port.op.operands[0]].append(LocalLayout(()))
        length = op.integers("length")[0] if op.kind == "scan" else 1
        if op.kind == "manual":
            barred = (*barred, *self.costs.axes.whole_axes(op.param("manual_axes")))
        for body in op.bodies:
            self._body(body, times * length, barred)

    def wires(self) -> tuple[list[Wire], list[int], dict[int, int]]:
        """Return the wires, how often the values of each wire are produced in total, and the index
        of each value's wire."""
        costs = self.costs
        known: dict[Wire, int] = {}
        often: list[int] = []
        number_of = {}
        arguments = set(costs.program.body.arguments)
        for value in (*self.home, *self.made_by):
            own = costs.values[value]
            wire = Wire(
                tensor_of(own, costs.axes),
                self.home.get(value),
                self.made_by.get(value),
                tuple(self.uses[value]),
                costs.propagated(value),
                self.times[value],
                value in arguments,
            )
            number = number_of[value] = known.setdefault(wire, len(known))
            if number == len(often):
                often.append(0)
            often[number] += wire.times
        return list(known), often, number_of


def _places_tied(ties: Sequence[Repeat]) -> dict[int, range]:
    found = {}
    for each in ties:
        for offset in range(each.period):
            same = each.places(offset)
            found.update(dict.fromkeys(same, same))
    return found


def tied(program: Program, axes: CutAxes) -> tuple[Repeat, ...]:
    """Return the stretches of ops that are split the same way: equal layers whose arguments and
    constraints have equal shardings."""
    values, arguments = program.values, set(program.body.arguments)

    def item(op: Op) -> Item:
        tensors = (*op.operands, *op.results)
        bound = set(op.results) if op.kind == "constrain" else arguments
        key = (
            op.kind,
            op.params,
            op.rule,
            id(op) if op.bodies else None,
            tuple((values[v].shape, values[v].dtype) for v in tensors),
            tuple(axes.layout(values[v].sharding, values[v].shape) for v in tensors if v in bound),
        )
        return Item(key, op.operands, op.results)

    return repeats(list(map(item, program.body.ops)), FEWEST)
