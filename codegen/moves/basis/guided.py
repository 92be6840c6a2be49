"""A guided search for a cheap path in the graph of the basis, for any number of devices.

It expands few shardings, each only by steps that approach the target (`alignment.py`):

    slice        over missing digits that are free; the search then tries no other step. Before
                 the first step that moves data, also over free digits in any dimension
    all_gather   over excess digits of one or several dimensions
    all_to_all   of minor-most digits to dimensions that miss them, several at once; or of the
                 minor-most digits of one dimension to any other
    permute      to the arrangements (`Arrangements`)
    all_reduce, reduce_scatter  as in the basis

The search always expands the sharding for which the cost so far plus GREED times the lower bound
`Estimates.lacking` is least, and stops after a number of shardings (`Effort`). From the best
shardings of each expansion it also continues straight to the target. It therefore finds a path
early, and prunes costlier paths.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from shardwright.codegen.moves.basis.alignment import Arrangements, aligned
from shardwright.codegen.moves.basis.bound import Estimates
from shardwright.codegen.moves.basis.digits import (
    Digits,
    merged,
    parts_of,
)
from shardwright.codegen.moves.basis.graph import (
    Basis,
    State,
    StateMove,
    exchanged,
    product_of,
    with_dim,
)
from shardwright.codegen.moves.basis.permutes import Choice, Permutes
from shardwright.codegen.moves.basis.search import ROUNDING, Allowed, Came, Path, way_to
from shardwright.codegen.moves.basis.slicing import Place, next_slice, slices
from shardwright.codegen.moves.move import Move


@dataclass(frozen=True)
class Effort:
    """The limits of a search."""

    expansions: int  # the maximum number of shardings to expand
    patience: int  # the maximum number of shardings to expand after the last better path


BEFORE_EXACT = Effort(60, 20)  # an exact search follows
POWERS_OF_TWO = Effort(300, 80)
MIXED = Effort(500, 250)  # for all other numbers of devices: their digits fit less often
LONGEST = 4000  # the maximum number of shardings to expand while there is no path
GREED = 2.0
# After each expansion the search tries to reach the target from this many of the cheapest new
# shardings; after the expansion of the source, from all of them.
COMPLETED = 4
# If two paths differ by less than this fraction of their seconds, the one with fewer steps wins.
ALIKE = 1e-3


class _Candidate(NamedTuple):
    """An entry of the queue: a sharding to expand, by permutes or by all other steps."""

    key: float  # the entry with the lowest key comes first
    number: int  # the order of insertion, which breaks ties, so the search is deterministic
    cost: float  # the cost of the path to the sharding
    least: float  # a lower bound on the cost of paths through the sharding
    state: State
    permutes: bool  # whether to expand by permutes
    is_told: bool  # whether `least` includes the estimates of the rest of the path


@dataclass
class Guided:
    """One guided search. `allowed`: returns whether a step fits in memory. `must_find`: whether
    to exceed the limits of `Effort` until a path is found."""

    basis: Basis
    estimates: Estimates
    permutes: Permutes
    allowed: Allowed
    must_find: bool = True
    expanded: int = 0
    _best: dict[State, float] = field(default_factory=dict)
    _came: dict[State, Came] = field(default_factory=dict)
    _queue: list[_Candidate] = field(default_factory=list)
    _arranged: dict[tuple[tuple[int, ...], Digits], Arrangements] = field(default_factory=dict)
    _entered: int = 0
    _found: float = math.inf  # the cost of the best path to the target
    _improved: int | None = None  # the number of expanded shardings when it was found
    _sliced: set[State] = field(default_factory=set)

    @cached_property
    def _tie(self) -> float:
        """The extra cost of each step, which makes paths with fewer steps win ties."""
        return ALIKE * self.estimates.lacking(self.basis.start)

    def run(self) -> Path | None:
        """Return the cheapest path found, or None if none was found."""
        self._reach(self.basis.start, 0.0, None)
        while self._queue and (self._seeks or self.expanded < self._last):
            entry = heapq.heappop(self._queue)
            state, cost = entry.state, entry.cost
            if cost > self._best[state] or self._is_done(entry):
                continue
            self.expanded += 1
            reached = self._permute(state, cost) if entry.permutes else self._step(state, cost)
            self.estimates.foresee(reached)
            count = len(reached) if state == self.basis.start else COMPLETED
            for after in sorted(reached, key=self._least)[:count]:
                if self._may_improve(after, self._best[after]):
                    self._complete(after)
        return self._path(self.basis.goal) if self.basis.goal in self._best else None

    @property
    def _seeks(self) -> bool:
        return self.must_find and self._improved is None and self.expanded < LONGEST

    @property
    def _last(self) -> int:
        effort = MIXED if self.basis.size.bit_count() > 1 else POWERS_OF_TWO
        effort = BEFORE_EXACT if self.basis.is_exact else effort
        return min(effort.expansions, (self._improved or 0) + effort.patience)

    def _least(self, state: State) -> float:
        return self._best[state] + self.estimates.lacking(state)

    def _may_improve(self, state: State, cost: float) -> bool:
        return cost + self.estimates.lacking(state) < self._found

    def _is_done(self, entry: _Candidate) -> bool:
        """Return whether to skip an entry: no better path goes through it, or its lower bound was
        too low. If the bound was too low, queue the entry again with a better bound."""
        state, cost = entry.state, entry.cost
        if state == self.basis.goal or entry.least >= self._found:
            return True
        if entry.is_told:
            return False
        lacking = self.estimates.lacking
        ahead = self.estimates.soon_with_permute(state) if entry.permutes else lacking(state)
        if entry.least >= cost + ahead:
            return False
        self._push(cost, ahead, state, entry.permutes, True)
        return True

    def _push(self, cost: float, ahead: float, state: State, permutes: bool, is_told: bool) -> None:
        if cost + ahead < self._found:
            self._entered += 1
            key = cost + GREED * ahead
            entry = _Candidate(key, self._entered, cost, cost + ahead, state, permutes, is_told)
            heapq.heappush(self._queue, entry)

    def _reach(self, state: State, cost: float, came: Came | None) -> bool:
        """Record a path to a state and queue the state if the path is cheaper than the known
        paths to the state and to the target. Return whether it is cheaper."""
        if cost >= self._most(state):
            return False
        self._best[state] = cost
        if state == self.basis.goal:
            self._improved, self._found = self.expanded, cost
        if came is not None:
            self._came[state] = came
        self._push(cost, 0.0, state, False, False)
        return True

    def _most(self, state: State) -> float:
        """Return the lower of two costs: that of the cheapest known path to a state, and that of
        the cheapest known path to the target."""
        best = self._best.get(state, math.inf)
        return min(best, self._found)

    def _step(self, state: State, cost: float) -> list[State]:
        """Expand a state by all steps except permutes, queue it for permutes, and return the
        states to which cheaper paths were found."""
        reached, least = list[State](), cost + self._tie
        for move in self._moves(state):
            if least < self._most(move.after) and self.allowed(state, move.after):
                seconds = self.estimates.seconds(state, move)
                if self._reach(move.after, least + seconds, (state, move, seconds)):
                    reached.append(move.after)
        if self.allowed(state, state):
            self._push(cost, self.estimates.lacking(state), state, True, False)
        return reached

    def _permute(self, state: State, cost: float) -> list[State]:
        if cost + self.estimates.with_permute(state, False) >= self._found:
            return []
        choice, reached = self._choice(state), list[State]()
        if choice is None:
            return []
        self.estimates.foresee(choice.states)
        least = (cost + self._tie + self.permutes.least(state, choice)).tolist()
        better = [
            number
            for number, (after, low) in enumerate(zip(choice.states, least, strict=True))
            if after != state and low < self._most(after) and self._may_improve(after, low)
        ]
        seconds_each = self.permutes.seconds(state, choice.receivers[np.array(better, dtype=int)])
        for number, seconds in zip(better, seconds_each.tolist(), strict=True):
            after = choice.states[number]
            came: Came = state, Move("permute", (), after), seconds
            total = cost + seconds + self._tie
            if self._reach(after, total, came):
                reached.append(after)
        return reached

    def _complete(self, state: State) -> None:
        """Continue straight from a state to the target: slice over missing digits that are free,
        then move digits to dimensions that miss them, then gather the rest."""
        cost, layer = self._best[state], self.basis.goal.layer
        while state != self.basis.goal and state.layer == layer:
            if state.unreduced != self.basis.kept:
                return
            place = self._place(state)
            move = next_slice(state, place)
            if move is None or not self.allowed(state, move.after):
                hits = list(self._hits(state, place, (), frozenset(), frozenset()))
                move = max(hits, key=lambda hit: parts_of(hit.axes), default=None)
            move = move or self._all_gathered(state, place)
            if not move.axes or not self.allowed(state, move.after):
                return
            seconds = self.estimates.seconds(state, move)
            cost += seconds + self._tie
            if not self._reach(move.after, cost, (state, move, seconds)):
                return
            state = move.after

    def _all_gathered(self, state: State, place: Place) -> StateMove:
        over = [dim for dim, found in enumerate(place.dims) if found.excess]
        return self._gathered(state, place, over)

    def _gathered(self, state: State, place: Place, over: Iterable[int]) -> StateMove:
        dims, gone = list(state.dims), list[tuple[int, int]]()
        for dim in over:
            found = place.dims[dim]
            fits = self.basis.fits(dim, parts_of(dims[dim]), parts_of(found.shared))
            gone += found.excess if fits else dims[dim]
            dims[dim] = merged(found.shared) if fits else ()
        after = State(state.layer, tuple(dims), state.unreduced)
        return Move("all_gather", tuple(gone), after)

    def _path(self, state: State) -> Path:
        steps, costs = way_to(state, self._came, self.permutes)
        bound = (1 - ROUNDING) * self.estimates.lacking(self.basis.start)
        return Path(steps, costs, bound)

    def _place(self, state: State) -> Place:
        goal = self.basis.goal.dims
        dims = tuple(aligned(*pair) for pair in zip(state.dims, goal, strict=True))
        return Place(dims, self.basis.free_of(state))

    def _moves(self, state: State) -> Iterator[StateMove]:
        reductions = tuple(self.basis.reductions(state))
        yield from reductions
        if state.layer != self.basis.goal.layer:
            yield from self._slices(state, self.basis.free_of(state))
            for dim in range(len(state.dims)):
                yield from self.basis.narrowings(state, dim)
            return
        place = self._place(state)
        taken = None if reductions else next_slice(state, place)
        if taken is not None and self.allowed(state, taken.after):
            yield taken
            return
        yield from self._slices(state, place.free)
        yield from self._gathers(state, place)
        yield from self._exchanges(state, place)

    def _slices(self, state: State, free: Digits) -> Iterator[StateMove]:
        """Yield slices over free digits in any dimensions, but only on paths that have moved no
        data yet."""
        if state in self._sliced or self._best[state] > 2 * self._tie:
            return
        for move in slices(self.basis, state, free):
            self._sliced.add(move.after)
            yield move

    def _gathers(self, state: State, place: Place) -> Iterator[StateMove]:
        over = [dim for dim, found in enumerate(place.dims) if found.excess]
        for count in range(1, len(over) + 1):
            for chosen in itertools.combinations(over, count):
                yield self._gathered(state, place, chosen)
        for dim in over:
            for kept, moved in self._tails(state, place, dim):
                yield Move("all_gather", moved, with_dim(state, dim, kept))

    def _tails(self, state: State, place: Place, dim: int) -> list[tuple[Digits, Digits]]:
        """Return the ways to cut the digits of a dimension in two such that only excess digits
        move."""
        most = parts_of(place.dims[dim].excess)
        return [cut for cut in self.basis.tails(state, dim) if parts_of(cut[1]) <= most]

    def _exchanges(self, state: State, place: Place) -> Iterator[StateMove]:
        yield from self._hits(state, place, (), frozenset(), frozenset())
        for dim, found in enumerate(place.dims):
            if found.excess:
                for kept, moved in self._tails(state, place, dim):
                    for other in range(len(state.dims)):
                        if other != dim:
                            after = exchanged(state, dim, kept, other, moved)
                            yield Move("all_to_all", moved, after)

    def _hits(
        self,
        state: State,
        place: Place,
        moved: Digits,
        lost: frozenset[int],
        gained: frozenset[int],
    ) -> Iterator[StateMove]:
        """Yield all-to-alls that move digits to the dimensions that miss them.

        The digits of several dimensions can move at once. `moved`: the digits that the all-to-all
        already moves. `lost`, `gained`: the dimensions that lose digits and that gain digits.
        """
        for dim, found in enumerate(place.dims):
            if not found.excess or dim in gained or dim in lost:
                continue
            tails = self._tails(state, place, dim)
            for other, wanting in enumerate(place.dims):
                if other == dim or wanting.excess or other in lost:
                    continue
                for kept, some in tails:
                    if aligned(some, wanting.missing).excess:
                        continue
                    after = exchanged(state, dim, kept, other, some)
                    digits = (*moved, *some)
                    yield Move("all_to_all", digits, after)
                    yield from self._hits(
                        after, self._place(after), digits, lost | {dim}, gained | {other}
                    )

    def _choice(self, state: State) -> Choice | None:
        """Return the candidate states of a permute; None while partial sums remain to be
        reduced, or if a permute would change the device order of the kept partial sums."""
        layer, parts = self.basis.goal.layer, product_of(state)
        if state.unreduced != self.basis.kept or (state.unreduced and layer != state.layer):
            return None
        held = state.dims if layer == state.layer else None
        free = self.basis.free(state.unreduced)
        key = parts, state.unreduced
        if key not in self._arranged:
            self._arranged[key] = Arrangements.of(self.basis.goal.dims, parts, free)
        found = self._arranged[key].dims(held, self.basis.free_of(state))
        return self.permutes.choice(State(layer, dims, state.unreduced) for dims in found)
