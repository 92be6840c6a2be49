"""The time of basis steps, and lower bounds on the time from a state to the target, in seconds.

Lower bounds assume that every digit divides the tensor evenly. Prices use the largest shards, which
are at least as large as even ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from shardwright.codegen.hardware.topology import Floats, Hierarchical
from shardwright.codegen.moves.basis.digits import Digits, parts_of
from shardwright.codegen.moves.basis.graph import Basis, State, StateMove, product_of
from shardwright.codegen.moves.basis.hosts import Hosts
from shardwright.codegen.moves.basis.relaxation import Parts, Remaining
from shardwright.codegen.moves.network.collectives import Prices, prices_of
from shardwright.codegen.moves.network.links import Network
from shardwright.ir.arrays import Integers
from shardwright.ir.exchange import ids_of, positions_of

# The most devices per host for which `hosts.py` computes its bound: it compares all pairs.
LARGEST_HOST = 64


@dataclass
class Estimates:
    """Estimates for one reshard on one network: the time of a step, and of the rest of a path,
    in seconds."""

    basis: Basis
    network: Network
    _overlaps: dict[tuple[int, int, Digits], Floats] = field(default_factory=dict)
    _lacks: dict[State, float] = field(default_factory=dict)
    _prices: dict[tuple[str, int, Digits, float], float] = field(default_factory=dict)
    _after: dict[tuple[Parts, bool], float] = field(default_factory=dict)
    _bytes: dict[Parts, float] = field(default_factory=dict)
    _padded: dict[tuple[Parts, Parts], float] = field(default_factory=dict)

    @cached_property
    def prices(self) -> tuple[Prices, ...]:
        """The prices of collectives, by layer."""
        reshard = self.basis.reshard
        meshes = (reshard.source.mesh, reshard.target.mesh)[: self.basis.layers]
        return tuple(prices_of(self.network, ids_of(mesh)) for mesh in meshes)

    def shard_bytes(self, state: State) -> float:
        """Return the bytes of the largest shard of a state."""
        return self.bytes_of(product_of(state))

    def bytes_of(self, parts: Parts) -> float:
        """Return the bytes of the largest shard. `parts`: the number of parts of each dimension."""
        found = self._bytes.get(parts)
        if found is None:
            pairs = zip(self.basis.reshard.shape, parts, strict=True)
            elements = math.prod(-(-extent // count) for extent, count in pairs)
            found = self._bytes[parts] = float(elements * self._itemsize)
        return found

    def seconds(self, state: State, move: StateMove) -> float:
        """Return the time of a step from a state, in seconds. The step must not be a permute."""
        if move.op == "slice":
            return 0.0
        parts = product_of(state)
        if self.basis.is_even:
            nbytes = self.bytes_of(parts)
        else:
            nbytes = self.padded_bytes(parts, product_of(move.after))
        return self.price_of(move.op, state.layer, move.axes, nbytes)

    def padded_bytes(self, parts: Parts, after: Parts) -> float:
        """Return the bytes of the largest shard before a step. A dimension that the step cuts
        further is padded to a multiple of its new parts. `parts`, `after`: the number of parts of
        each dimension before and after the step."""
        key = parts, after
        if key not in self._padded:
            sizes = (
                -(-extent // max(one, other)) * (max(one, other) // one)
                for extent, one, other in zip(self.basis.reshard.shape, parts, after, strict=True)
            )
            self._padded[key] = float(math.prod(sizes) * self._itemsize)
        return self._padded[key]

    def price(self, op: str, layer: int, digits: Digits, parts: Parts) -> float:
        """Return the time of a collective over digits of a layer, in seconds. `parts`: the
        number of parts of each dimension before the collective."""
        return self.price_of(op, layer, digits, self.bytes_of(parts))

    def price_of(self, op: str, layer: int, digits: Digits, nbytes: float) -> float:
        """Return the time of a collective over digits of a layer on shards of `nbytes` bytes, in
        seconds."""
        key = (op, layer, digits, nbytes)
        found = self._prices.get(key)
        if found is None:
            found = self._prices[key] = getattr(self.prices[layer], op)(digits, nbytes)
        return found

    def least_permute(self, state: State) -> float:
        """Return a lower bound on the time of a permute within one device order: at least one
        device receives a whole shard from another."""
        return self._moving(product_of(state))

    def _moving(self, parts: Parts) -> float:
        nbytes = self.bytes_of(parts)
        return self._latency + nbytes / self._fastest if nbytes else 0.0

    def quick(self, state: State) -> float:
        """Return a lower bound on the time from a state to the target, from the results that
        `relaxation.py` already has."""
        return self.remaining.so_far(state)

    def ahead(self, state: State) -> float:
        """Return a lower bound on the time from a state to the target, in seconds: the larger of
        `lacking` and the bound of `relaxation.py`."""
        return max(self.lacking(state), self.remaining.seconds(state))

    def lacking(self, state: State) -> float:
        """Return a cheap lower bound on the time from a state to the target, in seconds.

        A device must receive the part of its target shard that it lacks, in at least one message,
        and no faster than all its links together allow. The same holds for a host.
        """
        found = self._lacks.get(state)
        if found is None:
            self.foresee([state])
            found = self._lacks[state]
        return found

    def foresee(self, states: Iterable[State]) -> None:
        """Compute and cache `lacking` of several states at once, which is faster than one at a
        time."""
        new = [state for state in states if state not in self._lacks]
        for layer in range(self.basis.layers):
            some = [state for state in new if state.layer == layer]
            if some:
                self._lacks.update(zip(some, self._all_lacking(layer, some), strict=True))

    def _all_lacking(self, layer: int, states: list[State]) -> Iterator[float]:
        for state, nbytes, seconds in zip(states, *self._received(layer, states), strict=True):
            moves = nbytes >= 0.5  # less than a byte is a rounding error
            alone = self._latency + seconds if moves else 0.0
            hosts = self._hosts if moves and state.unreduced == self.basis.kept else None
            yield max(alone, hosts.seconds(state)) if hosts else alone

    @cached_property
    def _hosts(self) -> Hosts | None:
        """The hosts of the topology, or None for a topology without several hosts, and for hosts of
        more than LARGEST_HOST devices."""
        topology = self.network.topology
        if not isinstance(topology, Hierarchical) or topology.hosts == 1:
            return None
        if topology.host_size > LARGEST_HOST:
            return None
        return Hosts(self.basis, topology, tuple(prices.ids for prices in self.prices))

    def with_permute(self, state: State, whole: bool) -> float:
        """Return a lower bound on the time from a state to the target if the next step is a
        permute. `whole`: whether to use the bound of `relaxation.py`, which takes longer."""
        if not whole and self.basis.layers > 1:  # a permute may then move nothing
            return self.lacking(state)
        is_told = whole and state.unreduced == self.basis.kept
        if is_told and self.remaining.stays(state):
            return self.ahead(state)
        return self.least_permute(state) + self._after_permute(product_of(state), is_told)

    def soon_with_permute(self, state: State) -> float:
        """Return an estimate like `with_permute`, but for a permute that uses all links of a
        device at once. This estimate is lower, so the guided search tries more permutes, and
        tries them earlier."""
        if self.basis.layers > 1:
            return self.lacking(state)
        parts = product_of(state)
        return self.at_least(self.bytes_of(parts)) + self._after_permute(parts, False)

    def _after_permute(self, parts: Parts, is_told: bool) -> float:
        """Return a lower bound on the time to the target from any state with `parts` parts of
        the dimensions. `is_told`: whether to use the bound of `relaxation.py` too."""
        key = parts, is_told
        if key not in self._after:
            pairs = zip(parts, self._goal_parts, strict=True)
            held = math.prod(1.0 / max(a, b) for a, b in pairs)
            lacking = self.at_least((self._goal_share - held) * self._nbytes)
            rest = self.remaining.of_parts(parts) if is_told else 0.0
            self._after[key] = max(lacking, rest)
        return self._after[key]

    @cached_property
    def remaining(self) -> Remaining:
        """The time from relaxed states to the target."""
        return Remaining(self.basis, self.prices, self.price, self._moving, self.bytes_of)

    def at_least(self, nbytes: float) -> float:
        """Return a lower bound on the time in which a device receives `nbytes` bytes, in
        seconds."""
        if nbytes < 0.5:  # less than a byte is a rounding error
            return 0.0
        return self._latency + nbytes / self._ingest

    @cached_property
    def _latency(self) -> float:
        topology = self.network.topology
        return topology.collective + topology.least_latency

    @cached_property
    def _ingest(self) -> float:
        return self.network.topology.ingest

    @cached_property
    def _fastest(self) -> float:
        return self.network.topology.fastest

    @cached_property
    def _itemsize(self) -> int:
        return self.basis.reshard.itemsize

    @cached_property
    def _nbytes(self) -> float:
        return float(self.basis.reshard.nbytes)

    @cached_property
    def _goal_parts(self) -> tuple[int, ...]:
        return product_of(self.basis.goal)

    @cached_property
    def _goal_share(self) -> float:
        return 1.0 / math.prod(self._goal_parts)

    def _received(self, layer: int, states: list[State]) -> tuple[list[float], list[float]]:
        """Return two lists with one number per state: the maximum bytes of its target shard that
        a device lacks, and the maximum seconds that a device needs to receive them. While
        partial sums remain to be reduced, a device lacks its whole target shard."""
        held = np.ones((len(states), self.basis.size))
        for dim in range(self.basis.reshard.rank):
            held *= [self._overlap(layer, dim, state.dims[dim]) for state in states]
        held[[state.unreduced != self.basis.kept for state in states]] = 0.0
        lacking = (self._goal_share - held) * self._nbytes
        return lacking.max(axis=1).tolist(), (lacking * self._per_byte[layer]).max(axis=1).tolist()

    @cached_property
    def _per_byte(self) -> tuple[Floats, ...]:
        topology = self.network.topology
        return tuple(1.0 / topology.ingest_of(prices.ids) for prices in self.prices)

    def _overlap(self, layer: int, dim: int, digits: Digits) -> Floats:
        """Return, for each position, the fraction of a dimension that its device both holds and
        needs."""
        key = (layer, dim, digits)
        if key not in self._overlaps:
            length = 1.0 / parts_of(digits)
            low = self.basis.index(digits) * length
            start, end = self._wanted[layer][dim]
            self._overlaps[key] = np.maximum(
                np.minimum(low + length, end) - np.maximum(low, start), 0.0
            )
        return self._overlaps[key]

    @cached_property
    def _wanted(self) -> tuple[tuple[tuple[Floats, Floats], ...], ...]:
        """The start and the end of the target range at each position, by layer and dimension, as
        fractions of the dimension."""
        found = []
        for positions in self._goal_positions:
            ends = []
            for digits, parts in zip(self.basis.goal.dims, self._goal_parts, strict=True):
                goal = 1.0 / parts
                start = self.basis.index(digits)[positions].astype(np.float64) * goal
                ends.append((start, start + goal))
            found.append(tuple(ends))
        return tuple(found)

    @cached_property
    def _goal_positions(self) -> tuple[Integers, ...]:
        """The target position of the device at each position, by layer."""
        own = np.arange(self.basis.size, dtype=np.int64)
        if self.basis.layers == 1:
            return (own,)
        reshard = self.basis.reshard
        return positions_of(reshard.target.mesh, ids_of(reshard.source.mesh)), own
