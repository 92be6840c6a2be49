"""A lower bound on the cost of a program: on the bytes that its busiest device receives, plus its
computation.

The bound applies to all plans that split equal layers in the same way, as the search does. It is a
minimum over relaxed plans, which cost no more than real plans:

1. Each op may be split by pieces of axes in any way and any order, and receives nothing inside.
2. A value moved to several uses costs the mean of the bytes that each use alone would receive. A
   real plan costs at least the greatest of these numbers, because its moves include a path to
   every use.
3. A move costs the bytes that no path can avoid (`_received`).
4. Only the largest pieces of axes are distinguished. The others split every tensor and every op.

What remains are costs of single ops, and costs of pairs of ops that share a value. The cost of a
pair may be shifted to its two ops in any amounts `paid`. For any such shift, the least cost of
every op, including what it was charged, plus the least remaining cost of every pair is at most the
cost of any plan. Sweeps over the ops raise that sum ("sequential tree-reweighted message passing",
Kolmogorov 2006); it is a valid bound after any number of sweeps.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from shardwright.codegen.moves.paths import Tensor
from shardwright.codegen.ops.layout import LocalLayout, Names, fitting
from shardwright.codegen.partition.local.assign import FactorAxes, Splits
from shardwright.codegen.partition.local.axes import cut_axes
from shardwright.codegen.partition.local.costs import Costs, Wire
from shardwright.codegen.partition.local.idle import without_idle_constraints
from shardwright.codegen.partition.local.linear import carriers_of
from shardwright.codegen.partition.local.ports import PORT
from shardwright.codegen.partition.local.prices import Ratings
from shardwright.ir.mesh import Mesh
from shardwright.ir.program import Program

SWEEPS = 4
"""The number of sweeps over all ops, each forwards and backwards."""
MOST = 3
"""The most pieces of axes that are distinguished."""
UNUSED, PARTIAL = -1, -2
"""The codes for a piece that splits no dimension of a layout."""

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


def least_cost(program: Program, mesh: Mesh, ratings: Ratings) -> int:
    """Return a lower bound on the cost of a propagated program, rounded down to four digits. The
    cost is the bytes that the busiest device receives, plus its computation as the bytes that it
    could receive in that time."""
    program = without_idle_constraints(program)
    costs = Costs(program, cut_axes(program, mesh, ratings.topology), ratings)
    bound = max(_Relaxed(costs).bound(), 0.0) * (1 - 1e-9)
    unit: int = 10 ** max(len(str(int(bound))) - 4, 0)
    return int(bound // unit) * unit


@dataclass(frozen=True, eq=False)
class _Side:
    """The layouts of one tensor of an op.

    `codes`: the code of each piece in each distinct layout; `of`: the layout of each split of the
    op; `order`: the splits, sorted by layout; `starts`: where each layout starts in that order.
    """

    codes: Indices
    of: Indices
    order: Indices
    starts: Indices

    def least(self, prices: Array) -> Array:
        found: Array = np.minimum.reduceat(prices[self.order], self.starts)
        return found


@dataclass(eq=False)
class _Pair:
    """A value that one op produces and another uses. `cost`: the cost of the move between each pair
    of layouts; `paid`: the part of it charged to each of the two ops, by layout."""

    ops: tuple[int, int]
    sides: tuple[_Side, _Side]
    cost: Array
    paid: list[Array] = field(default_factory=list)

    def charge(self, at: int, prices: Array, share: float) -> None:
        """Charge the op at end `at` a share of its prices, and the op at the other end the rest of
        the cost of the move."""
        self.paid[at] = self.paid[at] - share * self.sides[at].least(prices)
        cost = self.cost if at == 0 else self.cost.T
        self.paid[1 - at] = (cost - self.paid[at][:, None]).min(axis=0)

    def left(self) -> float:
        return float((self.cost - self.paid[0][:, None] - self.paid[1][None, :]).min())


class _Relaxed:
    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        pieces = sorted(costs.axes.pieces, key=lambda piece: -piece[1])
        self.names = costs.axes.ordered(name for name, size in pieces[:MOST] if size > 1)
        self.sizes = np.array([costs.axes.sizes[name] for name in self.names], dtype=np.float64)
        self.rest = costs.axes.parts_of(costs.axes.sizes) / math.prod(self.sizes)
        self.fixed = 0.0
        self.pairs: list[_Pair] = []
        self._known: dict[object, tuple[Array, list[_Side]]] = {}
        self._costs: dict[object, Array] = {}
        nodes = [self._node(number) for number in range(len(costs.ops))]
        self.prices = [prices for prices, _ in nodes]
        self.sides = [sides for _, sides in nodes]
        for wire in range(len(costs.wires)):
            self._wire(wire)

    def _node(self, number: int) -> tuple[Array, list[_Side]]:
        costs, op, splits = self.costs, self.costs.ops[number], self.costs.splits[number]
        asked = costs.propagated(op.results[0]) if op.kind == "constrain" else None
        key = id(splits), asked
        if key not in self._known:
            carriers = tuple(carriers_of(op, costs.values))
            each = (
                [splits.along([(1, asked)])]
                if asked
                else list(_splits(splits, self.names, carriers))
            )
            layouts = [splits.layouts(split) for split in each]
            columns = zip(*((*own.operands, *own.results) for own in layouts), strict=True)
            is_computed = op.kind not in (PORT, "constrain")
            work = [splits.work(split) / self._unseen(split) for split in each]
            self._known[key] = np.array(work) * is_computed, list(map(self._side, columns))
        prices, sides = self._known[key]
        return prices * costs.times[number], sides

    def _unseen(self, split: FactorAxes) -> float:
        """Return the number of parts into which pieces that are not distinguished could split each
        shard of the op."""
        others = (n for own in split.factors for n in own if n not in self.names)
        return self.rest / self.costs.axes.parts_of(others)

    def _side(self, layouts: Sequence[LocalLayout]) -> _Side:
        places: dict[tuple[int, ...], int] = {}
        of = [places.setdefault(self._code(each), len(places)) for each in layouts]
        order = np.argsort(of, kind="stable")
        starts = np.searchsorted(np.array(of)[order], np.arange(len(places)))
        codes = np.array(list(places), dtype=np.int64).reshape(len(places), len(self.names))
        return _Side(codes, np.array(of), order, starts)

    def _code(self, layout: LocalLayout) -> tuple[int, ...]:
        """Return a code for each piece: the dimension that it splits, UNUSED or PARTIAL."""
        at = {name: dim for dim, names in enumerate(layout.dims) for name in names}
        at.update(dict.fromkeys(layout.partial, PARTIAL))
        return tuple(at.get(name, UNUSED) for name in self.names)

    def _wire(self, wire: int) -> None:
        own, costs = self.costs.wires[wire], self.costs
        share = costs.often[wire] / max(len(own.uses), 1)
        home = self._made(own)
        for use in own.uses:
            need = self._side([use]) if isinstance(use, LocalLayout) else self.sides[use[0]][use[1]]
            cost = share * self._cost(own.tensor, home, need)
            match own.made_by, use:
                case None, LocalLayout():
                    self.fixed += float(cost[0, 0])
                case None, (int(user), _):
                    self.prices[user] = self.prices[user] + cost[0][need.of]
                case (maker, _), LocalLayout():
                    self.prices[maker] = self.prices[maker] + cost[:, 0][home.of]
                case (maker, _), (user, _) if maker == user:  # this op uses it in the next layer
                    self.prices[user] = self.prices[user] + cost[home.of, need.of]
                case (maker, _), (int(user), _):
                    paid = [np.zeros(count) for count in cost.shape]
                    self.pairs.append(_Pair((maker, user), (home, need), cost, paid))

    def _made(self, own: Wire) -> _Side:
        if own.made_by is None:
            return self._side([own.home or own.propagated])
        number, place = own.made_by
        return self.sides[number][len(self.costs.ops[number].operands) + place]

    def _cost(self, tensor: Tensor, home: _Side, need: _Side) -> Array:
        key = tensor, home.codes.tobytes(), need.codes.tobytes()
        if key not in self._costs:
            least = tensor.pace.least if tensor.pace else 1.0
            found = _received(tensor, home.codes, need.codes, self.sizes, self.rest)
            self._costs[key] = least * found
        return self._costs[key]

    def bound(self) -> float:
        beside: list[list[tuple[_Pair, int]]] = [[] for _ in self.prices]
        for pair in self.pairs:
            for at, number in enumerate(pair.ops):
                beside[number].append((pair, at))
        for sweep in range(2 * SWEEPS):
            forward = sweep % 2 == 0
            for number in range(len(beside)) if forward else reversed(range(len(beside))):
                later = [p for p, at in beside[number] if p.ops[1 - at] > number]
                share = 1 / max(len(later), len(beside[number]) - len(later), 1)
                prices = self._charged(number, beside[number])
                for pair, at in beside[number]:
                    if (pair.ops[1 - at] > number) == forward:
                        pair.charge(at, prices, share)
        ops = (self._charged(number, own).min() for number, own in enumerate(beside))
        return self.fixed + float(sum(ops)) + sum(pair.left() for pair in self.pairs)

    def _charged(self, number: int, beside: Sequence[tuple[_Pair, int]]) -> Array:
        prices = self.prices[number]
        for pair, at in beside:
            prices = prices + pair.paid[at][pair.sides[at].of]
        return prices


def _splits(
    splits: Splits, names: Names, carriers: Sequence[tuple[int, ...]]
) -> Iterator[FactorAxes]:
    """Yield every split of an op by the pieces `names`, with one order of pieces per factor. The
    operands in one of `carriers` may be partial."""
    whole, sizes = splits.whole.factors, splits.rule.sizes
    options: list[list[int | tuple[int, ...] | None]] = []
    for name in names:
        fixed = [factor for factor, own in enumerate(whole) if name in own]
        is_free = not fixed and name not in splits.barred
        options.append([None, *sorted(splits.free), *carriers] if is_free else [None])
    for places in itertools.product(*options):
        along = {place for place in places if isinstance(place, tuple)}
        factors = [
            (*own, *(name for name, place in zip(names, places, strict=True) if place == factor))
            for factor, own in enumerate(whole)
        ]
        fits = (fitting(own, n, splits.sizes) == own for own, n in zip(factors, sizes, strict=True))
        if len(along) <= 1 and all(fits):
            partial = tuple(n for n, place in zip(names, places, strict=True) if place in along)
            yield FactorAxes(tuple(factors), partial, *along)


def _received(tensor: Tensor, home: Indices, need: Indices, sizes: Array, rest: float) -> Array:
    """Return the least number of bytes that the busiest device receives, for each layout `home` (a
    row) and `need` (a column).

    Let b be the bytes of a needed shard. Consider the devices that differ only in pieces that split
    `home` but not `need`, n devices in all. They hold different parts of the value and all need the
    same shard, of which each holds b / n on average. A piece may also split one dimension of `home`
    and another of `need`: along the first, each of the devices that differ in this piece holds a
    part and needs all parts.

    If `home` has partial results, each element has n terms. The first device that computes its sum
    must receive from the holders of the n - 1 other terms, and every other device that needs the
    sum must receive it later. If d devices need each of t bytes, they receive t (n - 1 + d - 1) in
    total. Two bytes are deducted for each axis, because the bytes of an all-reduce are rounded
    down.
    """
    here, there = home[:, None, :], need[None, :, :]

    def parts(which: npt.NDArray[np.bool_]) -> Array:
        found: Array = np.where(which, sizes, 1.0).prod(axis=-1)
        return found

    wanted = math.prod(tensor.shape) * tensor.item / parts(need >= 0)[None, :] / rest
    lost = parts((here >= 0) & (there < 0))
    turned = np.where((here >= 0) & (there >= 0) & (here != there), sizes, 1.0).max(
        axis=-1, initial=1
    )
    moved = wanted * (1 - 1 / (lost * turned))
    terms, devices = parts(home == PARTIAL)[:, None], sizes.prod() * rest
    each = math.prod(tensor.shape) * tensor.item / devices
    summed = wanted + each * (terms - 2) - 2 * len(tensor.sizes)
    found = np.where(terms > 1, np.maximum(summed, 0), moved)
    return np.where((need == PARTIAL).any(axis=-1)[None, :], 0.0, found)
