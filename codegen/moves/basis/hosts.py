"""Lower bounds on the time on a hierarchical topology, from the data that each host lacks."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from shardwright.codegen.hardware.topology import Floats, Hierarchical
from shardwright.codegen.moves.basis.digits import Digits, ordered, parts_of
from shardwright.codegen.moves.basis.graph import Basis, State
from shardwright.ir.arrays import Integers


@dataclass(frozen=True)
class Hosts:
    """The hosts of a hierarchical topology. `ids`: for each layer, the device id at each
    position."""

    basis: Basis
    topology: Hierarchical
    ids: tuple[Integers, ...]
    _weights: dict[tuple[int, Digits], Floats] = field(default_factory=dict)
    _overlaps: dict[tuple[int, int, Digits], Floats] = field(default_factory=dict)

    def seconds(self, state: State) -> float:
        """Return a lower bound on the time from a state to the target, in seconds.

        Elements of target shards that no device of a host holds must pass the link into the host. A
        step takes at least as long as this link is busy, so the bound is consistent.
        """
        shared = self._wanted[:, :, None] * self._weight(state)[:, None, :]
        for dim, digits in enumerate(state.dims):
            shared *= self._overlap(state.layer, dim, digits)
        lacking = (self._needed - shared.sum(axis=(1, 2))).max() * self._nbytes
        if lacking < 0.5:  # less than a byte is a rounding error
            return 0.0
        return self.topology.between_latency + float(lacking) / self.topology.between_bandwidth

    @cached_property
    def _nbytes(self) -> int:
        return self.basis.reshard.nbytes

    @cached_property
    def _wanted(self) -> Floats:
        return self._weight(self.basis.goal)

    @cached_property
    def _needed(self) -> Floats:
        """The fraction of the tensor that the devices of each host together need: [hosts]."""
        share = math.prod(1.0 / parts_of(digits) for digits in self.basis.goal.dims)
        needed: Floats = self._wanted.sum(axis=1) * share
        return needed

    @cached_property
    def _places(self) -> tuple[tuple[Integers, Integers], ...]:
        """For each layer, two arrays [hosts, devices]: the position of each device of each host,
        and whether the mesh has this device."""
        found = []
        for ids in self.ids:
            position = np.full(self.topology.size, -1, dtype=np.int64)
            position[ids] = np.arange(ids.size)
            rows = position.reshape(self.topology.hosts, self.topology.host_size)
            found.append((np.maximum(rows, 0), (rows >= 0).astype(np.int64)))
        return tuple(found)

    def _weight(self, state: State) -> Floats:
        """Return, for each device, 1 over the number of devices of its host with the same shard,
        and 0 for a device that is not in the mesh: [hosts, devices]."""
        key = state.layer, ordered(tuple(itertools.chain.from_iterable(state.dims)))
        if key not in self._weights:
            place, there = self._places[state.layer]
            number = self.basis.index(key[1])[place]
            same = (number[:, :, None] == number[:, None, :]) * there[:, None, :]
            self._weights[key] = there / np.maximum(same.sum(axis=2), 1)
        return self._weights[key]

    def _overlap(self, layer: int, dim: int, digits: Digits) -> Floats:
        """Return, for each pair of devices of a host, the fraction of a dimension that the first
        needs and the second holds: [hosts, devices, devices]."""
        key = layer, dim, digits
        if key not in self._overlaps:
            low, end = (
                ends[:, :, None]
                for ends in self._ends(self.basis.goal.layer, self.basis.goal.dims[dim])
            )
            other, top = (ends[:, None, :] for ends in self._ends(layer, digits))
            self._overlaps[key] = np.maximum(np.minimum(end, top) - np.maximum(low, other), 0.0)
        return self._overlaps[key]

    def _ends(self, layer: int, digits: Digits) -> tuple[Floats, Floats]:
        """Return two arrays [hosts, devices]: the start and the end of the range of a dimension on
        each device of each host, as fractions of the dimension."""
        low = self.basis.index(digits)[self._places[layer][0]] / parts_of(digits)
        return low, low + 1.0 / parts_of(digits)
