"""The exact search for the cheapest path in the graph of the basis (A*).

Costs are seconds of the cost model. Each step costs an extra TIE, which is less than the resolution
of the model and more than its rounding, so that among equally cheap paths the one with the fewest
steps wins. The estimate of the rest of a path is a lower bound (`Estimates.ahead`), so the first
path that reaches the target is a cheapest path. The first EARLY expansions use only the part of the
estimate that is cheap to compute, which suffices for many reshards. A state enters the queue with
its quick estimate.

A state has many permutes. They form one entry of the queue, with a lower bound on all their costs,
and are priced together when the entry is first in the queue.

The search runs only if there are few shardings (`Basis.is_exact`). It prunes paths that cost more
than the path of the guided search (`guided.py`). It ends with the cheapest path or, after
MOST_LOOKED expansions, with the best path so far. `Path.bound` is a lower bound on the seconds of
any sequence of basis steps with unlimited memory: the minimum of the cost of the path, the bounds
on paths through steps that memory forbids, and the keys of the remaining entries, minus the ties.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from shardwright.codegen.moves.basis.bound import Estimates
from shardwright.codegen.moves.basis.graph import Basis, State, StateMove
from shardwright.codegen.moves.basis.permutes import Permutes
from shardwright.codegen.moves.move import Move

MOST_LOOKED = 400
# The extra cost of each step, as a fraction of the smallest latency. It breaks ties in favour of
# paths with fewer steps.
TIE = 1e-6
# The relative rounding error of a sum of seconds.
ROUNDING = 1e-9
# The number of shardings to expand before the search uses the full estimate, which takes longer.
EARLY = 12

# Returns whether a step from one state to another fits in memory.
Allowed = Callable[[State, State], bool]
# How a state was reached: the previous state, the step from it, and the seconds of this step.
Came = tuple[State, StateMove, float]


@dataclass(frozen=True)
class Path:
    """The steps of a path, the seconds of each, and a lower bound on the seconds of any path."""

    steps: tuple[StateMove, ...]
    costs: tuple[float, ...]
    bound: float

    @property
    def seconds(self) -> float:
        """The seconds of all steps in sequence."""
        return sum(self.costs)


class _Entry(NamedTuple):
    """An entry of the queue: a state to expand, by permutes or by all other steps."""

    key: float  # a lower bound on the cost of paths through the entry
    number: int  # the order of insertion, which breaks ties, so the search is deterministic
    cost: float  # the cost of the path to the state
    state: State
    permutes: bool  # whether to expand by permutes


@dataclass
class Search:
    """One search over the basis of a reshard.

    `allowed`: returns whether a step fits in memory. `known`: a path from another search.
    `expanded`: the expanded states and the cost of the path to each. `looked`: the number of
    expansions; all permutes of a state are one expansion.
    """

    basis: Basis
    estimates: Estimates
    permutes: Permutes
    allowed: Allowed
    known: Path | None = None
    expanded: dict[State, float] = field(default_factory=dict)
    looked: int = 0
    _queue: list[_Entry] = field(default_factory=list)
    _best: dict[State, float] = field(default_factory=dict)
    _came: dict[State, Came] = field(default_factory=dict)
    _entered: int = 0
    _refused: float = math.inf  # a lower bound on the cost of paths that were not followed

    @cached_property
    def _tie(self) -> float:
        return TIE * self.estimates.network.topology.least_latency

    def run(self) -> Path | None:
        """Return the cheapest path, or the best path found if the search stops after MOST_LOOKED
        expansions. Return None if no path fits in memory."""
        self._reach(self.basis.start, 0.0, None)
        if self.known is not None and self.known.steps:
            total = self.known.seconds + len(self.known.steps) * self._tie
            self._best[self.basis.goal] = (1 + ROUNDING) * total
        while self._queue:
            entry = heapq.heappop(self._queue)
            state, cost = entry.state, entry.cost
            if self.known is not None and entry.key > self._best[self.basis.goal]:
                break
            if state == self.basis.goal and not entry.permutes:
                return self._path(state)
            if cost > self._best[state] or self._is_too_soon(entry):
                continue
            if self.looked >= MOST_LOOKED and self.basis.goal in self._best:
                self._refuse(entry.key)
                break
            self.looked += 1
            if entry.permutes:
                self._every_permute(entry)
            elif self.expanded.get(state, math.inf) > cost:
                self.expanded[state] = cost
                self._expand(state, cost)
        return self._path(self.basis.goal) if self.basis.goal in self._best else None

    def _is_too_soon(self, entry: _Entry) -> bool:
        """Return whether the full estimate is above the key of an entry. If it is, queue the entry
        again with the full estimate."""
        ahead = self._ahead(entry.state, entry.permutes)
        if entry.cost + ahead <= entry.key:
            return False
        self._push(ahead, entry.cost, entry.state, entry.permutes)
        return True

    def _ahead(self, state: State, permutes: bool) -> float:
        whole = len(self.expanded) >= EARLY
        ahead = self.estimates.ahead(state) if whole else self.estimates.lacking(state)
        return max(ahead, self.estimates.with_permute(state, whole)) if permutes else ahead

    def _expand(self, state: State, cost: float) -> None:
        most, least = self._best.get(self.basis.goal, math.inf), cost + self._tie
        quick, best = self.estimates.quick, self._best.get
        for move in self.basis.moves(state):
            if least >= best(move.after, math.inf) or least + quick(move.after) > most:
                continue
            seconds = self.estimates.seconds(state, move)
            if self.allowed(state, move.after):
                self._reach(move.after, cost + seconds + self._tie, (state, move, seconds))
            else:
                self._refuse(cost + seconds + self.estimates.lacking(move.after))
        self._push(self._ahead(state, True), cost, state, True)

    def _every_permute(self, entry: _Entry) -> None:
        state = entry.state
        if not self.allowed(state, state):  # no permute changes the size
            self._refuse(entry.key)
            return
        choice = self.permutes.all_of(state)
        best = np.array([self._best.get(other, math.inf) for other in choice.states])
        least = entry.cost + self.permutes.least(state, choice) + self._tie
        most = self._best.get(self.basis.goal, math.inf)
        better = np.flatnonzero((least < best) & (least < most))
        seconds = self.permutes.seconds(state, choice.receivers[better])
        total = entry.cost + seconds + self._tie
        for i in np.flatnonzero(total < best[better]).tolist():
            other = choice.states[better[i]]
            came: Came = state, Move("permute", (), other), float(seconds[i])
            self._reach(other, float(total[i]), came)

    def _refuse(self, least: float) -> None:
        self._refused = min(self._refused, least)

    def _improves(self, state: State, cost: float) -> bool:
        return cost < self._best.get(state, math.inf)

    def _reach(self, state: State, cost: float, came: Came | None) -> None:
        if not self._improves(state, cost):
            return
        self._best[state] = cost
        if came is not None:
            self._came[state] = came
        self._push(self.estimates.quick(state), cost, state, False)

    def _push(self, ahead: float, cost: float, state: State, permutes: bool) -> None:
        if cost + ahead > self._best.get(self.basis.goal, math.inf):
            return
        self._entered += 1
        heapq.heappush(self._queue, _Entry(cost + ahead, self._entered, cost, state, permutes))

    def _path(self, state: State) -> Path:
        steps, costs = way_to(state, self._came, self.permutes)
        if self.known is not None and not steps:
            return replace(self.known, bound=self._bound(self.known.seconds))
        return Path(steps, costs, self._bound(sum(costs)))

    def _bound(self, seconds: float) -> float:
        least = min(self._best[self.basis.goal], self._refused)
        proven = least - self._tie * self._most_steps(least)
        return max(0.0, (1 - ROUNDING) * min(seconds, proven))

    def _most_steps(self, seconds: float) -> float:
        """Return an upper bound on the number of steps of a path that takes at most `seconds` and
        visits no sharding twice.

        Each step except slices and permutes to another device order takes at least one latency.
        There are at most as many slices between two other steps as there are atoms.
        """
        latency = self.estimates.network.topology.least_latency
        taken = self.basis.layers + (seconds / latency if latency else 0.0)
        return taken + (taken + 1) * max(map(len, self.basis.atoms))


def way_to(
    state: State, came: Mapping[State, Came], permutes: Permutes
) -> tuple[tuple[StateMove, ...], tuple[float, ...]]:
    """Return the steps of the path to a state, and the seconds of each."""
    found: list[tuple[StateMove, float]] = []
    while state in came:
        state, move, seconds = came[state]
        if move.op == "permute":
            move = move._replace(axes=permutes.digits(state, move.after))
        found.append((move, seconds))
    return _slices_joined(found[::-1])


def _slices_joined(
    found: list[tuple[StateMove, float]],
) -> tuple[tuple[StateMove, ...], tuple[float, ...]]:
    joined: list[tuple[StateMove, float]] = []
    for move, seconds in found:
        if joined and move.op == "slice" == joined[-1][0].op:
            before, _ = joined.pop()
            move = Move("slice", (*before.axes, *move.axes), move.after)
        joined.append((move, seconds))
    return tuple(move for move, _ in joined), tuple(seconds for _, seconds in joined)
