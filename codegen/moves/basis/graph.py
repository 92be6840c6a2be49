"""The graph of the basis: its nodes are states, which are normalised shardings, and its edges are
moves, which are collectives.

A state gives a sharding by digits of the mesh position, (stride, size), which can express sub-axes
of either mesh. Contiguous neighbours are one digit: `"x":(1)2, "x":(2)3` is `"x"`. A
digit can be cut again at any border of either mesh.

    slice           free digits split a dimension further; nothing moves
    all_gather      the minor-most digits of one or several dimensions become free
    all_to_all      the minor-most digits of a dimension move to the minor end of another; digits of
                    several dimensions can move at once, to dimensions that lose none
    permute         to any sharding with the same number of parts in every dimension
    reduce_scatter  unreduced digits split a dimension further, as its minor-most digits
    all_reduce      unreduced digits become free

The `layer` of a state is the device order to which its digits refer: 0 for the source's order, 1
for the target's if it differs. Only a permute changes the layer.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from shardwright.codegen.moves.basis.boxed import sizes_fit
from shardwright.codegen.moves.basis.digits import (
    Digits,
    Pair,
    divisors,
    merged,
    minus,
    ordered,
    parts_of,
    primes,
)
from shardwright.codegen.moves.move import Move
from shardwright.ir.arrays import Integers
from shardwright.ir.exchange import same_devices
from shardwright.ir.mesh import Mesh
from shardwright.ir.reshard import Reshard
from shardwright.ir.sharding import Sharding

# The maximum number of prime factors of the device count, and of shardings, for an exact search.
EXACT_FACTORS = 4
EXACT = 4000


class State(NamedTuple):
    """A normalised sharding."""

    layer: int  # the device order: 0 for the source's, 1 for the target's
    dims: tuple[Digits, ...]  # the digits that split each dimension
    unreduced: Digits


StateMove: TypeAlias = Move[Pair, State]


def product_of(state: State) -> tuple[int, ...]:
    """Return the number of parts of each dimension in a state."""
    return _product_of(state.dims)


@functools.cache
def _product_of(dims: tuple[Digits, ...]) -> tuple[int, ...]:
    return tuple(map(parts_of, dims))


@dataclass(frozen=True)
class Basis:
    """The states and moves of a reshard between meshes of the same devices.

    `long_slices`: whether one move may slice over several atoms, as a search with a memory limit
    requires. Otherwise a move slices over one atom, and the search joins successive slices.
    """

    reshard: Reshard
    long_slices: bool = False

    @cached_property
    def layers(self) -> int:
        """The number of different device orders of the source and target mesh: 1 or 2."""
        return 1 if same_devices(self.reshard.source.mesh, self.reshard.target.mesh) else 2

    @cached_property
    def size(self) -> int:
        """The number of devices of each mesh."""
        return self.reshard.source.mesh.size

    @cached_property
    def start(self) -> State:
        return state_of(self.reshard.source, 0)

    @cached_property
    def goal(self) -> State:
        return state_of(self.reshard.target, self.layers - 1)

    @cached_property
    def kept(self) -> Digits:
        """The unreduced digits of the target, which no step changes."""
        return self.goal.unreduced

    def meshes(self, layer: int) -> tuple[Mesh, ...]:
        """Return the meshes whose axes can name the digits of a layer."""
        both = (self.reshard.source.mesh, self.reshard.target.mesh)
        return tuple(dict.fromkeys(both)) if self.layers == 1 else (both[layer],)

    @cached_property
    def borders(self) -> tuple[frozenset[int], ...]:
        """For each layer, the borders of all sub-axes, at which digits may be cut."""
        return tuple(
            frozenset(
                stride * cut
                for mesh in self.meshes(layer)
                for stride, size in _axes(mesh)
                for cut in divisors(size)
            )
            for layer in range(self.layers)
        )

    @cached_property
    def coarse_borders(self) -> tuple[frozenset[int], ...]:
        """For each layer, the borders of axes and of the digits of source and target."""
        return tuple(
            frozenset(
                end
                for stride, size in itertools.chain(
                    *(_axes(mesh) for mesh in self.meshes(layer)), *self._cuts(layer)
                )
                for end in (stride, stride * size)
            )
            | {1, self.size}
            for layer in range(self.layers)
        )

    def _cuts(self, layer: int) -> Iterator[Digits]:
        for side in (self.start, self.goal):
            if side.layer == layer:
                yield from (*side.dims, side.unreduced)

    @cached_property
    def atoms(self) -> tuple[Digits, ...]:
        """For each layer, the digits between neighbouring borders, which cannot be cut."""
        return tuple(
            tuple(
                (low, high // low)
                for low in sorted(borders)
                for high in sorted(borders)
                if high > low
                and not high % low
                and not any(low < b < high and not b % low and not high % b for b in borders)
            )
            for borders in self.borders
        )

    @cached_property
    def chain(self) -> int:
        """The largest number of atoms in a sequence in which each atom begins at the end of the
        previous one."""
        longest = 0
        for layer in range(self.layers):
            length = {1: 0}
            for border in sorted(self.borders[layer]):
                below = [length[b] for b in length if b < border and not border % b]
                length[border] = 1 + max(below) if below else 0
            longest = max(longest, length[self.size])
        return longest

    @cached_property
    def is_exact(self) -> bool:
        """Whether an exact search is feasible: an upper bound on the number of shardings is at
        most EXACT."""
        if len(primes(self.size)) > EXACT_FACTORS:
            return False
        atoms, rank = self.chain, self.reshard.rank
        counts = (
            math.perm(atoms, k) * math.comb(k + max(rank, 1) - 1, k) for k in range(atoms + 1)
        )
        orders = (_orders(size) for mesh in self.meshes(0) for _, size in mesh.axes)
        return sum(counts) * self.layers * math.prod(orders) <= EXACT

    @cached_property
    def _indices(self) -> dict[Digits, Integers]:
        return {}

    def index(self, digits: Digits) -> Integers:
        """Return the number that digits (major to minor) form at each position, cached."""
        if digits not in self._indices:
            positions = np.arange(self.size, dtype=np.int64)
            index = np.zeros_like(positions)
            for stride, size in digits:
                index = index * size + positions // stride % size
            self._indices[digits] = index
        return self._indices[digits]

    def free(self, used: Digits) -> Digits:
        """Return the digits outside `used`, as large as possible, minor to major."""
        gaps, at = [], 1
        for stride, size in sorted(used):
            if stride > at:
                gaps.append((at, stride // at))
            at = stride * size
        if self.size > at:
            gaps.append((at, self.size // at))
        return tuple(gaps)

    def pieces(self, layer: int, spaces: Digits) -> Digits:
        """Return digits cut at the coarse borders of a layer, minor to major."""
        found = []
        for stride, size in spaces:
            at, top = stride, stride * size
            for border in sorted(self.coarse_borders[layer] | {top}):
                if at < border <= top and not border % at and not top % border:
                    found.append((at, border // at))
                    at = border
        return tuple(found)

    def within(self, layer: int, spaces: Digits) -> Iterator[Pair]:
        """Yield the atoms of a layer that the given digits contain."""
        for stride, size in spaces:
            for atom in self.atoms[layer]:
                top = atom[0] * atom[1]
                if not atom[0] % stride and not (stride * size) % top and top <= stride * size:
                    yield atom

    def fits(self, dim: int, parts: int, others: int) -> bool:
        """Return whether the shards of a dimension with `parts` parts and with `others` parts nest.
        If they nest, a step between them is a collective on padded shards."""
        return parts == others or self._fit(dim, min(parts, others), max(parts, others))

    def fit(self, state: State, after: State) -> bool:
        """Return whether the shards of two states nest."""
        pairs = zip(product_of(state), product_of(after), strict=True)
        return all(self.fits(dim, *parts) for dim, parts in enumerate(pairs))

    @cached_property
    def is_even(self) -> bool:
        """Whether every cut of the mesh divides every extent."""
        return all(extent % self.size == 0 for extent in self.reshard.shape)

    @cached_property
    def _splits(self) -> frozenset[str]:
        return frozenset({self.reshard.source_split, self.reshard.target_split})

    def _fit(self, dim: int, few: int, many: int) -> bool:
        extent = self.reshard.shape[dim]
        if extent % many and "nested" in self._splits:
            return False
        return sizes_fit(extent, few, many)

    def free_of(self, state: State) -> Digits:
        """Return the digits that a state leaves free, as large as possible, minor to major."""
        return self.free((*itertools.chain.from_iterable(state.dims), *state.unreduced))

    def slices(self, state: State) -> Iterator[StateMove]:
        """Yield the slices from a state, each of which splits one dimension by one atom."""
        for atom in self.within(state.layer, self.free_of(state)):
            for dim in range(len(state.dims)):
                yield Move("slice", (atom,), appended(state, dim, (atom,)))

    def _all_slices(self, state: State) -> Iterator[StateMove]:
        start: StateMove = Move("slice", (), state)
        found, ahead = {state}, [start]
        while ahead:
            before = ahead.pop()
            for move in self.slices(before.after):
                if move.after not in found:
                    found.add(move.after)
                    ahead.append(Move("slice", (*before.axes, *move.axes), move.after))
                    yield ahead[-1]

    def moves(self, state: State) -> Iterator[StateMove]:
        """Yield all steps from a state except permutes."""
        yield from self._all_slices(state) if self.long_slices else self.slices(state)
        yield from self._gathers(state)
        yield from self._exchanges(state)
        yield from self.reductions(state)

    def _gathers(self, state: State) -> Iterator[StateMove]:
        ways = [((digits, ()), *self.tails(state, dim)) for dim, digits in enumerate(state.dims)]
        for kept in itertools.product(*ways):
            gone = tuple(itertools.chain.from_iterable(moved for _, moved in kept))
            if gone:
                after = State(state.layer, tuple(digits for digits, _ in kept), state.unreduced)
                yield Move("all_gather", gone, after)

    def _exchanges(self, state: State) -> Iterator[StateMove]:
        found: dict[State, StateMove] = {}
        start: StateMove = Move("all_to_all", (), state)
        ahead = [(start, frozenset[int](), frozenset[int]())]
        for before, lost, gained in ahead:
            for dim, other in itertools.permutations(range(len(state.dims)), 2):
                if dim in lost | gained or other in lost:
                    continue
                for kept, moved in self.tails(before.after, dim):
                    after = exchanged(before.after, dim, kept, other, moved)
                    if after not in found:
                        found[after] = Move("all_to_all", (*before.axes, *moved), after)
                        ahead.append((found[after], lost | {dim}, gained | {other}))
        yield from found.values()

    def narrowings(self, state: State, dim: int) -> Iterator[StateMove]:
        """Yield the all-gathers over digits of one dimension, and the all-to-alls that move its
        digits to another dimension."""
        for kept, moved in self.tails(state, dim):
            yield Move("all_gather", moved, with_dim(state, dim, kept))
            for other in range(len(state.dims)):
                if other != dim:
                    yield Move("all_to_all", moved, exchanged(state, dim, kept, other, moved))

    def tails(self, state: State, dim: int) -> tuple[tuple[Digits, Digits], ...]:
        """Return the ways to cut the digits of a dimension in two: the digits that it keeps, and
        the minor-most digits, which move."""
        key = state.layer, state.dims[dim]
        if key not in self._tails:
            self._tails[key] = tuple(self._cut_in_two(*key))
        return self._tails[key]

    @cached_property
    def _tails(self) -> dict[tuple[int, Digits], tuple[tuple[Digits, Digits], ...]]:
        return {}

    def _cut_in_two(self, layer: int, digits: Digits) -> Iterator[tuple[Digits, Digits]]:
        for i in reversed(range(len(digits))):
            (stride, size), minor = digits[i], digits[i + 1 :]
            for cut in range(2, size + 1):
                if size % cut == 0 and (cut == size or stride * cut in self.borders[layer]):
                    rest = () if cut == size else ((stride * cut, size // cut),)
                    yield (*digits[:i], *rest), ((stride, cut), *minor)

    def reductions(self, state: State) -> Iterator[StateMove]:
        """Yield the all-reduces and reduce-scatters of a state, over unreduced digits that are not
        unreduced in the target."""
        sums = self.outside_kept(state.unreduced)
        if not sums:
            return
        singles = [(atom,) for atom in self.within(state.layer, sums)]
        whole = tuple(sorted(sums, reverse=True))
        for digits in dict.fromkeys([*singles, *((digit,) for digit in sums), whole]):
            left = minus(state.unreduced, digits)
            reduced = State(state.layer, state.dims, left)
            yield Move("all_reduce", digits, reduced)
            for dim in range(len(state.dims)):
                yield Move("reduce_scatter", digits, appended(reduced, dim, digits))

    def outside_kept(self, unreduced: Digits) -> Digits:
        """Return the digits in `unreduced` that are not unreduced in the target."""
        return minus(unreduced, self.kept)


def _axes(mesh: Mesh) -> Digits:
    strides = [mesh.size // math.prod(mesh.sizes[n] for n in mesh.names[: i + 1]) for i, n in
               enumerate(mesh.names)]  # fmt: skip
    return tuple((stride, size) for stride, (_, size) in zip(strides, mesh.axes, strict=True))


def state_of(sharding: Sharding, layer: int) -> State:
    """Return the state of a sharding. `layer`: the layer of its mesh."""
    mesh = sharding.mesh
    dims = tuple(
        merged(tuple((d.stride, d.size) for d in sharding.digits(dim)))
        for dim in range(sharding.rank)
    )
    unreduced = (mesh.digit(ref) for ref in sharding.unreduced)
    return State(layer, dims, ordered(tuple((d.stride, d.size) for d in unreduced if d.size > 1)))


def with_dim(state: State, dim: int, digits: Digits) -> State:
    """Return the state with the digits of one dimension replaced."""
    return State(state.layer, (*state.dims[:dim], digits, *state.dims[dim + 1 :]), state.unreduced)


def appended(state: State, dim: int, digits: Digits) -> State:
    """Return the state with digits appended to one dimension, as its minor-most digits."""
    return with_dim(state, dim, merged((*state.dims[dim], *digits)))


def exchanged(state: State, dim: int, kept: Digits, other: int, moved: Digits) -> State:
    """Return the state after an all-to-all: dimension `dim` keeps the digits `kept`, and `moved`
    become the minor-most digits of dimension `other`."""
    dims = list(state.dims)
    dims[dim], dims[other] = kept, merged(dims[other] + moved)
    return State(state.layer, tuple(dims), state.unreduced)


def _orders(size: int) -> int:
    """Return the number of distinct orders of the prime factors of an axis size."""
    found = Counter(primes(size))
    return math.factorial(found.total()) // math.prod(map(math.factorial, found.values()))
