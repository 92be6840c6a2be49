"""What the hosts of a hierarchical topology lack, all devices of a host together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shardwright.codegen.hardware.topology import Floats, Hierarchical
from shardwright.codegen.planner.basis.digits import parts_of
from shardwright.codegen.planner.basis.graph import Basis, State
from shardwright.ir.arrays import Integers


@dataclass(frozen=True)
class Shares:
    """The shards of a sharding on the devices of every host, as parts of the tensor.

    `low`: per dimension where each starts, [hosts, devices]; `length`: of all, per dimension;
    `weight`: one over how many devices of the host have the same one, 0 where there is none.
    """

    low: tuple[Floats, ...]
    length: tuple[float, ...]
    weight: Floats


@dataclass(frozen=True)
class Hosts:
    """The hosts that devices are on; `ids`: by layer, the device at every position."""

    basis: Basis
    topology: Hierarchical
    ids: tuple[Integers, ...]

    def seconds(self, state: State) -> float:
        """Return a lower bound on the seconds from a state to the target: what a host lacks of the
        target shards of its devices has to come over its one link, once.

        A step takes at least as long as that link is busy, so that this is no more than what a
        step brings and what is left after it.
        """
        held, wanted = self._shares(state), self._wanted
        shared = wanted.weight[:, :, None] * held.weight[:, None, :]
        sides = zip(wanted.low, wanted.length, held.low, held.length, strict=True)
        for low, length, other, extent in sides:
            start = np.maximum(low[:, :, None], other[:, None, :])
            end = np.minimum(low[:, :, None] + length, other[:, None, :] + extent)
            shared *= np.maximum(end - start, 0.0)
        needed = wanted.weight.sum(axis=1) * math.prod(wanted.length)
        lacking = (needed - shared.sum(axis=(1, 2))).max() * self._nbytes
        if lacking < 0.5:  # less than a byte is rounding
            return 0.0
        return self.topology.between_latency + float(lacking) / self.topology.between_bandwidth

    @cached_property
    def _nbytes(self) -> int:
        return self.basis.reshard.nbytes

    @cached_property
    def _wanted(self) -> Shares:
        return self._shares(self.basis.goal)

    @cached_property
    def _places(self) -> tuple[tuple[Integers, Integers], ...]:
        """By layer, the position of every device of every host, and whether it has one."""
        found = []
        for ids in self.ids:
            position = np.full(self.topology.size, -1, dtype=np.int64)
            position[ids] = np.arange(ids.size)
            rows = position.reshape(self.topology.hosts, self.topology.host_size)
            found.append((np.maximum(rows, 0), (rows >= 0).astype(np.int64)))
        return tuple(found)

    def _shares(self, state: State) -> Shares:
        place, there = self._places[state.layer]
        number, low, lengths = np.zeros_like(place), [], []
        for digits in state.dims:
            index, parts = self.basis.index(digits)[place], parts_of(digits)
            number = number * parts + index
            low.append(index / parts)
            lengths.append(1.0 / parts)
        same = (number[:, :, None] == number[:, None, :]) * there[:, None, :]
        return Shares(tuple(low), tuple(lengths), there / np.maximum(same.sum(axis=2), 1))
