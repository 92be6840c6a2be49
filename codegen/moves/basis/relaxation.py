"""Lower bounds for an exact search, from a relaxed graph in which shardings lose information.

A relaxed sharding consists of the digits in use and the number of parts of each dimension, without
the dimension that each digit splits. A gather or an all-to-all over some digits costs the same as
before, whichever dimensions they split. A permute leads to any digits, at the minimum cost of a
permute. Every path between shardings is a path between relaxed shardings too, so the cheapest
relaxed path is a lower bound. There are few relaxed shardings: 104 for the 685 shardings of rank 3
on 16 devices.

While partial sums remain to be reduced, there is no bound.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from shardwright.codegen.moves.basis.digits import Digits, factorings, minus, ordered, parts_of
from shardwright.codegen.moves.basis.graph import Basis, State, product_of
from shardwright.codegen.moves.network.collectives import Prices

Parts = tuple[int, ...]
Use = tuple[int, Digits]
"""A layer, and the digits that split dimensions."""
Price = Callable[[str, int, Digits, Parts], float]


class Relaxed(NamedTuple):
    """A relaxed sharding."""

    layer: int
    used: Digits  # the digits that split dimensions
    parts: Parts  # the number of parts of each dimension


@dataclass
class Remaining:
    """The minimum time from each relaxed sharding to the relaxed target, in seconds.

    The times are computed in ascending order, by Dijkstra's algorithm, which starts at the target
    and goes only as far as needed. `price`: returns the seconds of a collective, given its op,
    layer, digits and the parts before it. `permute`: returns the minimum seconds of a permute,
    given the parts. `nbytes`: returns the bytes of a shard, given the parts.
    """

    basis: Basis
    prices: tuple[Prices, ...]
    price: Price
    permute: Callable[[Parts], float]
    nbytes: Callable[[Parts], float]
    _settled: dict[Relaxed, float] = field(default_factory=dict)
    _least: dict[Parts, float] = field(default_factory=dict)
    _reached: dict[Relaxed, float] = field(default_factory=dict)
    _queue: list[tuple[float, Relaxed]] = field(default_factory=list)
    _kept: dict[State, Relaxed] = field(default_factory=dict)
    _exchanges: dict[tuple[int, tuple[Digits, ...], float], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._reach(self.relaxed(self.basis.goal), 0.0)

    def relaxed(self, state: State) -> Relaxed:
        if state not in self._kept:
            used = ordered(tuple(itertools.chain.from_iterable(state.dims)))
            self._kept[state] = Relaxed(state.layer, used, product_of(state))
        return self._kept[state]

    def seconds(self, state: State) -> float:
        """Return a lower bound on the time from a state to the target, in seconds; 0 while
        partial sums remain to be reduced."""
        if state.unreduced != self.basis.kept:
            return 0.0
        wanted = self.relaxed(state)
        while wanted not in self._settled:
            self._settle()
        return self._settled[wanted]

    def so_far(self, state: State) -> float:
        """Return a lower bound on `seconds` from the nodes settled so far, without further
        search."""
        if state.unreduced != self.basis.kept:
            return 0.0
        nearest = self._queue[0][0] if self._queue else 0.0  # no unsettled node is nearer
        return self._settled.get(self.relaxed(state), nearest)

    def stays(self, state: State) -> bool:
        """Return whether a permute from a state to the other device order may move nothing."""
        return self.basis.layers > 1 and bool(self._same[self.relaxed(state)[:2]])

    def of_parts(self, parts: Parts) -> float:
        """Return a lower bound on the time to the target from any state with `parts` parts of
        the dimensions."""
        while parts not in self._least:
            self._settle()
        return self._least[parts]

    def _settle(self) -> None:
        """Settle the nearest unsettled node, and update the nodes from which a step leads to it."""
        seconds, node = heapq.heappop(self._queue)
        if node in self._settled:
            return
        self._settled[node] = seconds
        if node.parts not in self._least:
            self._least[node.parts] = seconds
            permute = seconds + self.permute(node.parts)
            for layer, used in self._alike[math.prod(node.parts)]:
                self._reach(Relaxed(layer, used, node.parts), permute)
        for layer, used in self._same[node.layer, node.used]:
            self._reach(Relaxed(layer, used, node.parts), seconds)
        for before, step in self._before(node):
            self._reach(before, seconds + step)

    def _reach(self, node: Relaxed, seconds: float) -> None:
        if seconds < self._reached.get(node, math.inf):
            self._reached[node] = seconds
            heapq.heappush(self._queue, (seconds, node))

    def _before(self, node: Relaxed) -> Iterator[tuple[Relaxed, float]]:
        """Yield the nodes from which a step other than a permute leads to a node, with the seconds
        of the step."""
        layer, used, parts = node
        for digits, joined in self._outside[layer, used]:
            for before in _multiplied(parts, parts_of(digits)):
                yield (
                    Relaxed(layer, joined, before),
                    self.price("all_gather", layer, digits, before),
                )
        for digits, left in self._inside[layer, used]:
            size = parts_of(digits)
            for i, count in enumerate(parts):
                if count % size == 0:
                    yield Relaxed(layer, left, (*parts[:i], count // size, *parts[i + 1 :])), 0.0
        yield from self._before_exchange(node)

    def _before_exchange(self, node: Relaxed) -> Iterator[tuple[Relaxed, float]]:
        """Yield the nodes from which an all-to-all leads to a node, with the seconds of the
        all-to-all over the cheapest digits of each size."""
        layer, used, parts = node
        for size, choice in self._by_size[layer, used]:
            for before in _exchanged_before(parts, size):
                yield Relaxed(layer, used, before), self._exchange(layer, choice, before)

    def _exchange(self, layer: int, choice: tuple[Digits, ...], parts: Parts) -> float:
        key = layer, choice, self.nbytes(parts)
        if key not in self._exchanges:
            prices = (self.price("all_to_all", layer, digits, parts) for digits in choice)
            self._exchanges[key] = min(prices)
        return self._exchanges[key]

    @cached_property
    def _by_size(self) -> dict[Use, tuple[tuple[int, tuple[Digits, ...]], ...]]:
        """For each use, the sets of its digits, grouped by their number of parts."""
        found = {}
        for use, cuts in self._inside.items():
            sizes: dict[int, list[Digits]] = {}
            for digits, _ in cuts:
                sizes.setdefault(parts_of(digits), []).append(digits)
            found[use] = tuple((size, tuple(same)) for size, same in sizes.items())
        return found

    @cached_property
    def _inside(self) -> dict[Use, list[tuple[Digits, Digits]]]:
        """For each use, pairs of a non-empty set of its digits and the rest of its digits."""
        free = self.basis.free(self.basis.kept)
        return {
            (layer, used): [(some, minus(used, some)) for some in self._within(layer, used) if some]
            for layer in range(self.basis.layers)
            for used in self._within(layer, free)
        }

    def _within(self, layer: int, space: Digits) -> list[Digits]:
        """Return all sets of atoms in `space`, including the empty set."""
        found: list[Digits] = [()]
        for some in found:
            for atom in self.basis.within(layer, minus(space, some)):
                more = ordered((*some, atom))
                if more not in found:
                    found.append(more)
        return found

    @cached_property
    def _outside(self) -> dict[Use, list[tuple[Digits, Digits]]]:
        """For each use, pairs of a set of digits that it does not contain, and the union of the set
        and the use."""
        found: dict[Use, list[tuple[Digits, Digits]]] = {use: [] for use in self._inside}
        for (layer, joined), cuts in self._inside.items():
            for some, left in cuts:
                found[layer, left].append((some, joined))
        return found

    @cached_property
    def _alike(self) -> dict[int, list[Use]]:
        found: dict[int, list[Use]] = {}
        for layer, used in self._inside:
            found.setdefault(parts_of(used), []).append((layer, used))
        return found

    @cached_property
    def _same(self) -> dict[Use, list[Use]]:
        """For each use, the uses of the other layer that divide the devices into the same
        groups."""
        together: dict[tuple[int, ...], list[Use]] = {}
        for use in self._inside:
            together.setdefault(self._together(*use), []).append(use)
        return {
            use: [other for other in uses if other[0] != use[0]]
            for uses in together.values()
            for use in uses
        }

    def _together(self, layer: int, used: Digits) -> tuple[int, ...]:
        """Return, for each device, the first device whose digits have the same values. Devices
        are in ascending order of ids."""
        devices = np.argsort(self.prices[layer].ids)
        _, first, number = np.unique(
            self.basis.index(used)[devices], return_index=True, return_inverse=True
        )
        return tuple(first[number].tolist())


@functools.cache
def _multiplied(parts: Parts, size: int) -> tuple[Parts, ...]:
    """Return all parts that result from multiplying the dimensions by factors with product
    `size`."""
    return tuple(
        tuple(map(operator.mul, parts, factors)) for factors in factorings(size, len(parts))
    )


@functools.cache
def _exchanged_before(parts: Parts, size: int) -> tuple[Parts, ...]:
    """Return the parts before each all-to-all over digits of `size` parts that results in
    `parts`."""
    return tuple(
        tuple(
            count // factor * other
            for count, factor, other in zip(parts, gained, lost, strict=True)
        )
        for gained, lost in _exchanged(size, len(parts))
        if all(count % factor == 0 for count, factor in zip(parts, gained, strict=True))
    )


@functools.cache
def _exchanged(size: int, rank: int) -> tuple[tuple[Parts, Parts], ...]:
    """Return, for each possible all-to-all over digits of `size` parts, the factors by which the
    parts of each dimension are multiplied and divided."""
    ways = factorings(size, rank)
    return tuple(
        (gained, lost)
        for gained, lost in itertools.product(ways, ways)
        if all(1 in pair for pair in zip(gained, lost, strict=True))
    )
