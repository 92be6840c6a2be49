"""Permutes: steps from a sharding to any other with the same number of parts in every dimension.

A permute moves whole shards. A device that already has its target shard keeps it. The other holders
and the other receivers of a shard are paired in the order of their device ids.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import numpy as np

from shardwright.codegen.hardware.topology import Floats
from shardwright.codegen.moves.basis.bound import Estimates
from shardwright.codegen.moves.basis.digits import Digits, merged, minus, ordered, parts_of
from shardwright.codegen.moves.basis.graph import Basis, State, product_of
from shardwright.codegen.moves.basis.relaxation import Parts
from shardwright.ir.arrays import Integers

Shard = TypeVar("Shard", int, tuple[int, ...])


@dataclass(frozen=True)
class Choice:
    """The states to which one permute may lead."""

    states: tuple[State, ...]
    layers: Integers  # the layer of each state
    # The device ids, ordered by the index of the shard that they hold in the state, then by id:
    # [states, devices].
    receivers: Integers


@dataclass
class Permutes:
    """The permutes of a basis, and their time."""

    basis: Basis
    estimates: Estimates
    _arranged: dict[tuple[int, Digits, int], tuple[Digits, ...]] = field(default_factory=dict)
    _choices: dict[tuple[Parts, Digits, range], Choice] = field(default_factory=dict)
    _receivers: dict[State, Integers] = field(default_factory=dict)

    def all_of(self, state: State) -> Choice:
        """Return every state that a permute from a state can reach, including the state itself."""
        parts, layers = product_of(state), self._layers(state)
        key = parts, state.unreduced, layers
        if key not in self._choices:
            alike = (self._states(layer, state.unreduced, parts) for layer in layers)
            self._choices[key] = self.choice(itertools.chain.from_iterable(alike))
        return self._choices[key]

    def seconds(self, state: State, receivers: Integers) -> Floats:
        """Return the time of k permutes from a state in seconds, [k]. `receivers`: rows of
        `Choice.receivers`, [k, devices]."""
        have, senders = self._by_shard(state)
        held = np.zeros(int(senders.max()) + 1, dtype=np.int64)
        held[senders] = have
        moving = held[receivers] != have
        senders = np.broadcast_to(senders, receivers.shape)
        # With replicas, pair the devices that keep their shard with themselves.
        if math.prod(product_of(state)) < senders.shape[1]:
            kept_last = np.argsort(2 * have + ~moving, axis=1, kind="stable")
            wanted = np.zeros((len(receivers), held.size), dtype=np.int64)
            np.put_along_axis(wanted, receivers, np.broadcast_to(have, receivers.shape), axis=1)
            keeps = np.take_along_axis(wanted, senders, axis=1) == have
            receivers = np.take_along_axis(receivers, kept_last, axis=1)
            moving = np.take_along_axis(moving, kept_last, axis=1)
            by_keeping = np.argsort(2 * have + keeps, axis=1, kind="stable")
            senders = np.take_along_axis(senders, by_keeping, axis=1)
        nbytes = self.estimates.shard_bytes(state)
        moved = moving.astype(np.float64)
        return self.estimates.network.seconds_each(senders, receivers, moved, nbytes)

    def least(self, state: State, choice: Choice) -> Floats:
        """Return a lower bound on the time of each permute in `choice`; 0 for a permute to a
        different device order, which may move nothing."""
        least: Floats = self.estimates.least_permute(state) * (choice.layers == state.layer)
        return least

    def _by_shard(self, state: State) -> tuple[Integers, Integers]:
        """Return two arrays [devices]: the indices of the shards that devices hold, ascending,
        and the ids of these devices, ascending for each shard."""
        number, rank = self._number(state), self._by_rank[state.layer]
        order = rank[np.argsort(number[rank], kind="stable")]
        return number[order], self.estimates.prices[state.layer].ids[order]

    @cached_property
    def _by_rank(self) -> Integers:
        """For each layer, the positions in ascending order of device ids: [layers, devices]."""
        found = [np.argsort(prices.ids) for prices in self.estimates.prices]
        return np.stack(found if len(found) > 1 else [np.arange(self.basis.size)])

    def choice(self, states: Iterable[State]) -> Choice:
        """Return a `Choice` of the given states. Receivers are computed once per state."""
        found = tuple(states)
        layers = np.array([state.layer for state in found], dtype=np.int64)
        new = tuple(state for state in found if state not in self._receivers)
        if new:
            self._receivers.update(zip(new, self._received(new), strict=True))
        rows = [self._receivers[state] for state in found]
        return Choice(found, layers, np.array(rows, np.int64).reshape(-1, self.basis.size))

    def _received(self, states: tuple[State, ...]) -> Integers:
        layers = np.array([state.layer for state in states], dtype=np.int64)
        numbers = np.stack([self._number(state) for state in states])
        rank = self._by_rank[layers]
        by_shard = np.argsort(np.take_along_axis(numbers, rank, axis=1), axis=1, kind="stable")
        ids = np.stack([prices.ids for prices in self.estimates.prices])[layers]
        order = np.take_along_axis(rank, by_shard, axis=1)
        received: Integers = np.take_along_axis(ids, order, axis=1)
        return received

    def digits(self, state: State, after: State) -> Digits:
        """Return the digits over which a permute moves data: the digits of the dimensions that
        change."""
        pairs = zip(state.dims, after.dims, strict=True)
        changed = [(a, b) for a, b in pairs if a != b or state.layer != after.layer]
        atoms = {
            atom
            for side in (0, 1)
            for pair in changed
            for atom in self._pieces(after.layer if side else state.layer, pair[side])
        }
        return ordered(tuple(atoms)) if _apart(atoms) else ordered(
            tuple(digit for pair in changed for digit in pair[0])
        )  # fmt: skip

    def _layers(self, state: State) -> range:
        """Return the layers that permutes from a state can reach. With partial sums, a permute must
        keep the device order."""
        if state.unreduced:
            return range(state.layer, state.layer + 1)
        return range(self.basis.layers)

    def _states(self, layer: int, unreduced: Digits, parts: Parts) -> list[State]:
        """Return all states of a layer with the given unreduced digits. `parts`: the number of
        parts of each dimension."""
        found: list[tuple[tuple[Digits, ...], Digits]] = [((), self.basis.free(unreduced))]
        for count in parts:
            found = [
                ((*dims, digits), minus(free, digits))
                for dims, free in found
                for digits in self._digits(layer, free, count)
            ]
        return sorted(State(layer, dims, unreduced) for dims, _ in found)

    def _digits(self, layer: int, free: Digits, count: int) -> tuple[Digits, ...]:
        """Return all sequences of atoms in `free` that split a dimension into `count` parts, merged
        where contiguous."""
        if count == 1:
            return ((),)
        key = (layer, free, count)
        if key not in self._arranged:
            longer = (
                merged((atom, *minor))
                for atom in self.basis.within(layer, free)
                if count % atom[1] == 0
                for minor in self._digits(layer, minus(free, (atom,)), count // atom[1])
            )
            self._arranged[key] = tuple(dict.fromkeys(longer))
        return self._arranged[key]

    def _number(self, state: State) -> Integers:
        """Return the index of the shard, or of a shard's partial sum, at each position."""
        number = self.basis.index(state.unreduced)
        for digits in state.dims:
            number = number * parts_of(digits) + self.basis.index(digits)
        return number

    def _pieces(self, layer: int, digits: Digits) -> Digits:
        """Return digits cut at successive borders of a layer, each of which is a multiple of the
        previous one."""
        found: list[tuple[int, int]] = []
        for stride, size in digits:
            top, at = stride * size, stride
            minor_first = []
            while at < top:
                borders = sorted(self.basis.borders[layer])
                end = next((b for b in borders if b > at and not b % at and not top % b), top)
                minor_first.append((at, end // at))
                at = end
            found += reversed(minor_first)
        return tuple(found)


def permuted(have: list[Shard], want: list[Shard]) -> list[tuple[int, int]]:
    """Return the pairs (sender, receiver) of a permute, as modules perform it. `have`, `want`: for
    each rank, the index of the shard that it holds, and of the shard that it needs.

    >>> permuted([0, 0, 1, 1], [0, 1, 0, 1])
    [(1, 2), (0, 0), (2, 1), (3, 3)]
    """
    ends = (
        sorted(range(len(have)), key=lambda rank: (number[rank], have[rank] == want[rank]))
        for number in (have, want)
    )
    return list(zip(*ends, strict=True))


def _apart(digits: set[tuple[int, int]]) -> bool:
    """Return whether digits are disjoint, and can all be cut from the position at once."""
    at = 1
    for stride, size in sorted(digits):
        if stride < at or stride % at:
            return False
        at = stride * size
    return True
