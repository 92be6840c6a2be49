"""The basis of reshardings as a graph: normalised shardings, and the collectives between them.

A state is a sharding in digits of the mesh position, (stride, size), so that sub-axes of either
mesh, and of two meshes over one order of devices, are one language. Contiguous neighbours are one
digit: `"x":(1)2, "x":(2)3` is `"x"`, and can be cut again at any border of either mesh.

    slice           a dimension is split further over digits that are free; nothing moves
    all_gather      the minor-most digits of a dimension become free
    all_to_all      the minor-most digits of a dimension become those of another
    permute         any other sharding with as many parts of every dimension
    reduce_scatter  unreduced digits become the minor-most of a dimension
    all_reduce      unreduced digits become free

`layer` says in which order of devices the digits are read: 0 the source's, 1 the target's where
that is another; only a permute goes from one to the other.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from shardwright.codegen.planner.basis.digits import (
    Digits,
    Pair,
    divisors,
    merged,
    minus,
    ordered,
    parts_of,
    primes,
)
from shardwright.ir.arrays import Integers
from shardwright.ir.exchange import same_devices
from shardwright.ir.mesh import Mesh
from shardwright.ir.reshard import Reshard
from shardwright.ir.sharding import Sharding

# On meshes of up to so many prime factors, every sub-axis may be used on the way.
FINE_FACTORS = 4
# Up to so many shardings are all looked at if need be.
THOROUGH = 4000


class State(NamedTuple):
    """A normalised sharding."""

    layer: int
    dims: tuple[Digits, ...]
    unreduced: Digits


class Move(NamedTuple):
    """A step of the basis but a permute: what it is called, over which digits, where it ends."""

    op: str
    digits: Digits
    after: State


def product_of(state: State) -> tuple[int, ...]:
    """Return into how many parts each dimension is split."""
    return _product_of(state.dims)


@functools.cache
def _product_of(dims: tuple[Digits, ...]) -> tuple[int, ...]:
    return tuple(map(parts_of, dims))


@dataclass(frozen=True)
class Basis:
    """The states and moves of a reshard whose meshes have the same devices.

    `long_slices`: slices over any digits are one move, as a limit on what a step holds needs it;
    otherwise over one atom, and the search joins them.
    """

    reshard: Reshard
    long_slices: bool = False

    @cached_property
    def layers(self) -> int:
        """How many orders of devices there are."""
        return 1 if same_devices(self.reshard.source.mesh, self.reshard.target.mesh) else 2

    @property
    def size(self) -> int:
        """How many devices."""
        return self.reshard.source.mesh.size

    @cached_property
    def start(self) -> State:
        """The source."""
        return _state(self.reshard.source, 0)

    @cached_property
    def goal(self) -> State:
        """The target."""
        return _state(self.reshard.target, self.layers - 1)

    @cached_property
    def kept(self) -> Digits:
        """The unreduced digits of the target: they stay."""
        return self.goal.unreduced

    def meshes(self, layer: int) -> tuple[Mesh, ...]:
        """Return the meshes whose axes name the digits of a layer."""
        both = (self.reshard.source.mesh, self.reshard.target.mesh)
        return tuple(dict.fromkeys(both)) if self.layers == 1 else (both[layer],)

    @cached_property
    def is_fine(self) -> bool:
        """Whether all sub-axes are used: the mesh has few prime factors."""
        return len(primes(self.size)) <= FINE_FACTORS

    @cached_property
    def borders(self) -> tuple[frozenset[int], ...]:
        """Per layer where digits may be cut: at the borders of all sub-axes, or, on a mesh of many
        prime factors, at those of the axes and of what the source and the target have."""
        if self.is_fine:
            return tuple(
                frozenset(
                    stride * cut
                    for mesh in self.meshes(layer)
                    for stride, size in _axes(mesh)
                    for cut in divisors(size)
                )
                for layer in range(self.layers)
            )
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
        """Yield the digits of the sides that are of a layer."""
        for side in (self.start, self.goal):
            if side.layer == layer:
                yield from (*side.dims, side.unreduced)

    @cached_property
    def atoms(self) -> tuple[Digits, ...]:
        """Per layer the digits between two borders that have none between them."""
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
        """The most atoms that stand beside each other: prime factors, or what is left of them."""
        longest = 0
        for layer in range(self.layers):
            length = {1: 0}
            for border in sorted(self.borders[layer]):
                below = [length[b] for b in length if b < border and not border % b]
                length[border] = 1 + max(below) if below else 0
            longest = max(longest, length[self.size])
        return longest

    @cached_property
    def is_thorough(self) -> bool:
        """Whether a search looks at every sharding if need be."""
        atoms, rank = self.chain, self.reshard.rank
        counts = (
            math.perm(atoms, k) * math.comb(k + max(rank, 1) - 1, k) for k in range(atoms + 1)
        )
        return sum(counts) * self.layers <= THOROUGH

    @cached_property
    def _indices(self) -> dict[Digits, Integers]:
        return {}

    def index(self, digits: Digits) -> Integers:
        """Return the number that digits (major to minor) make of every position; remembered."""
        if digits not in self._indices:
            positions = np.arange(self.size, dtype=np.int64)
            index = np.zeros_like(positions)
            for stride, size in digits:
                index = index * size + positions // stride % size
            self._indices[digits] = index
        return self._indices[digits]

    def free(self, used: Digits) -> Digits:
        """Return the maximal digits that are not used, minor to major."""
        gaps, at = [], 1
        for stride, size in sorted(used):
            if stride > at:
                gaps.append((at, stride // at))
            at = stride * size
        if self.size > at:
            gaps.append((at, self.size // at))
        return tuple(gaps)

    def within(self, layer: int, spaces: Digits) -> Iterator[Pair]:
        """Yield the atoms inside any of the given digits."""
        for stride, size in spaces:
            for atom in self.atoms[layer]:
                top = atom[0] * atom[1]
                if not atom[0] % stride and not (stride * size) % top and top <= stride * size:
                    yield atom

    def slices(self, state: State) -> Iterator[Move]:
        """Yield the slices over one atom."""
        used = (*itertools.chain.from_iterable(state.dims), *state.unreduced)
        for atom in self.within(state.layer, self.free(used)):
            for dim in range(len(state.dims)):
                yield Move("slice", (atom,), _appended(state, dim, (atom,)))

    def _all_slices(self, state: State) -> Iterator[Move]:
        """Yield the slices over any atoms, each sharding once."""
        found, ahead = {state}, [Move("slice", (), state)]
        while ahead:
            before = ahead.pop()
            for move in self.slices(before.after):
                if move.after not in found:
                    found.add(move.after)
                    ahead.append(Move("slice", (*before.digits, *move.digits), move.after))
                    yield ahead[-1]

    def moves(self, state: State) -> Iterator[Move]:
        """Yield all steps from a state but permutes."""
        yield from self._all_slices(state) if self.long_slices else self.slices(state)
        for dim in range(len(state.dims)):
            for kept, moved in self.tails(state, dim):
                without = _with(state, dim, kept)
                yield Move("all_gather", moved, without)
                for other in range(len(state.dims)):
                    if other != dim:
                        yield Move("all_to_all", moved, _appended(without, other, moved))
        yield from self._reductions(state)

    def tails(self, state: State, dim: int) -> Iterator[tuple[Digits, Digits]]:
        """Yield the ways to cut a dimension's digits in two: what stays, and the minor-most
        ones."""
        digits = state.dims[dim]
        for i in reversed(range(len(digits))):
            (stride, size), minor = digits[i], digits[i + 1 :]
            for cut in range(2, size + 1):
                if size % cut == 0 and (cut == size or stride * cut in self.borders[state.layer]):
                    rest = () if cut == size else ((stride * cut, size // cut),)
                    yield (*digits[:i], *rest), ((stride, cut), *minor)

    def _reductions(self, state: State) -> Iterator[Move]:
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
                yield Move("reduce_scatter", digits, _appended(reduced, dim, digits))

    def outside_kept(self, unreduced: Digits) -> Digits:
        """Return the unreduced digits that the target does not have."""
        return minus(unreduced, self.kept)


def _axes(mesh: Mesh) -> Digits:
    strides = [mesh.size // math.prod(mesh.sizes[n] for n in mesh.names[: i + 1]) for i, n in
               enumerate(mesh.names)]  # fmt: skip
    return tuple((stride, size) for stride, (_, size) in zip(strides, mesh.axes, strict=True))


def _state(sharding: Sharding, layer: int) -> State:
    mesh = sharding.mesh
    dims = tuple(
        merged(tuple((d.stride, d.size) for d in sharding.digits(dim)))
        for dim in range(sharding.rank)
    )
    unreduced = (mesh.digit(ref) for ref in sharding.unreduced)
    return State(layer, dims, ordered(tuple((d.stride, d.size) for d in unreduced if d.size > 1)))


def _with(state: State, dim: int, digits: Digits) -> State:
    return State(state.layer, (*state.dims[:dim], digits, *state.dims[dim + 1 :]), state.unreduced)


def _appended(state: State, dim: int, digits: Digits) -> State:
    return _with(state, dim, merged((*state.dims[dim], *digits)))
