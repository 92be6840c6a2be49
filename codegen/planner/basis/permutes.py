"""Permutes: from a sharding to any other with as many parts of every dimension.

Every shard moves as a whole, and each of its holders sends it to one device that shall hold it, or
keeps it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from shardwright.codegen.hardware.topology import Floats
from shardwright.codegen.planner.basis.bound import Estimates
from shardwright.codegen.planner.basis.digits import Digits, merged, minus, ordered, parts_of
from shardwright.codegen.planner.basis.graph import Basis, State, product_of
from shardwright.codegen.planner.basis.relaxation import Parts
from shardwright.ir.arrays import Integers


@dataclass(frozen=True)
class Choice:
    """States that a permute may lead to, the layer of each, and who is to receive each shard then:
    device ids [states, devices], by the number of the shard that they hold, and by position."""

    states: tuple[State, ...]
    layers: Integers
    receivers: Integers


@dataclass
class Permutes:
    """The permutes of a basis, and their prices."""

    basis: Basis
    estimates: Estimates
    _arranged: dict[tuple[int, Digits, int], tuple[Digits, ...]] = field(default_factory=dict)
    _choices: dict[tuple[Parts, Digits, range], Choice] = field(default_factory=dict)

    def all_of(self, state: State) -> Choice:
        """Return every state that a permute leads to, this one too."""
        parts, layers = product_of(state), self._layers(state)
        key = parts, state.unreduced, layers
        if key not in self._choices:
            alike = (self._states(layer, state.unreduced, parts) for layer in layers)
            self._choices[key] = self.choice(itertools.chain.from_iterable(alike))
        return self._choices[key]

    def seconds(self, state: State, receivers: Integers) -> Floats:
        """Return what permutes from a state cost, by the receivers [k, devices] of each."""
        ids = self.estimates.prices[state.layer].ids
        have = self._number(state)
        order = np.argsort(have, kind="stable")
        held = np.zeros(int(ids.max()) + 1, dtype=np.int64)
        held[ids] = have
        moving = np.where(held[receivers] != have[order], 1.0, 0.0)
        senders = np.broadcast_to(ids[order], receivers.shape)
        nbytes = self.estimates.shard_bytes(state)
        return self.estimates.network.seconds_each(senders, receivers, moving, nbytes)

    def choice(self, states: Iterable[State]) -> Choice:
        """Return states of as many parts with their receivers."""
        found = tuple(states)
        receivers = np.empty((len(found), self.basis.size), dtype=np.int64)
        for row, state in zip(receivers, found, strict=True):
            order = np.argsort(self._number(state), kind="stable")
            row[:] = self.estimates.prices[state.layer].ids[order]
        layers = np.array([state.layer for state in found], dtype=np.int64)
        return Choice(found, layers, receivers)

    def digits(self, state: State, after: State) -> Digits:
        """Return the digits that a permute moves: those of the dimensions that change."""
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
        """Return where permutes lead: values that are still sums stay in their order of devices."""
        if state.unreduced:
            return range(state.layer, state.layer + 1)
        return range(self.basis.layers)

    def _states(self, layer: int, unreduced: Digits, parts: Parts) -> list[State]:
        """Return all states of a layer with so many parts of each dimension, for the exact
        search."""
        found: list[tuple[tuple[Digits, ...], Digits]] = [((), self.basis.free(unreduced))]
        for count in parts:
            found = [
                ((*dims, digits), minus(free, digits))
                for dims, free in found
                for digits in self._digits(layer, free, count)
            ]
        return sorted(State(layer, dims, unreduced) for dims, _ in found)

    def _digits(self, layer: int, free: Digits, count: int) -> tuple[Digits, ...]:
        """Return all digits, in any order, that are made of atoms within free ones and so many
        parts."""
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
        """Return a number of the shard, and of the sum, at every position."""
        number = self.basis.index(state.unreduced)
        for digits in state.dims:
            number = number * parts_of(digits) + self.basis.index(digits)
        return number

    def _pieces(self, layer: int, digits: Digits) -> Digits:
        """Return digits cut at every border, as far as one chain of borders goes."""
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


def _apart(digits: set[tuple[int, int]]) -> bool:
    """Return whether digits do not overlap, so that they name sub-axes side by side."""
    at = 1
    for stride, size in sorted(digits):
        if stride < at or stride % at:
            return False
        at = stride * size
    return True
