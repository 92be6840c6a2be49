"""How much a device computes in the time in which it receives a byte, and how slow its axes are.

Without a topology, the rates are typical of current chips. With one, they follow from the model of
a large all-gather along each axis, and from the topology's devices.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from shardwright.codegen.hardware.presets import check_devices, name_of, topology_of
from shardwright.codegen.hardware.rates import multiply_rate
from shardwright.codegen.hardware.topology import Topology
from shardwright.codegen.moves.basis.digits import Pair
from shardwright.codegen.moves.network.collectives import prices_of
from shardwright.codegen.moves.network.links import Network
from shardwright.codegen.moves.pace import Pace
from shardwright.ir.dtypes import dtype_of
from shardwright.ir.errors import InputError

OPERATIONS, TOUCHED = 1000.0, 5.0
"""How many operations of a matmul, and how many bytes read or written by other ops, cost as much as
one received byte."""
LARGE = 2.0**26
"""The shard size in bytes from which the latency of a gather is negligible."""


@dataclass(frozen=True)
class Rates:
    """The rates of a device relative to bytes received over the fastest axis. `slow`: the factor by
    which each other axis is slower; `pace`: the prices of communication on the topology."""

    topology: Topology | None = None
    bandwidth: float = 0.0  # bytes per second over the fastest axis
    slow: tuple[tuple[str, float], ...] = ()
    pace: Pace | None = None

    def operations(self, dtype: str) -> float:
        """Return the number of matmul operations per received byte for a dtype in the notation of
        jaxprs."""
        if self.topology is None:
            return OPERATIONS
        return _multiplied(self.topology, dtype) / self.bandwidth

    @property
    def touched(self) -> float:
        """The bytes of memory traffic per received byte."""
        memory = 0.0 if self.topology is None else self.topology.memory
        return memory / self.bandwidth if memory else TOUCHED

    def __str__(self) -> str:
        figures = (
            f"a byte is worth {self.operations('f32'):,.0f} operations of a float32 matmul, or "
        )
        figures += f"{self.touched:,.1f}".removesuffix(".0") + " bytes read or written"
        if self.topology is None:
            return f"{figures}; no topology is given"
        slow = [(name, times) for name, times in self.slow if times > 1.05]
        several = (f'; over "{name}" a byte counts {times:.1f} times' for name, times in slow)
        return "".join((f"on {name_of(self.topology)} {figures}", *several))


DEFAULT = Rates()
"""The rates used without a topology."""


def rates_of(
    pieces: tuple[tuple[str, int], ...], device_ids: Iterable[int], topology: str | None
) -> Rates:
    """Return the rates of a mesh with cut axes on a topology.

    Raises InputError for an unknown topology, or one with too few devices.
    """
    return DEFAULT if topology is None else _rates(pieces, tuple(device_ids), topology)


@functools.lru_cache(maxsize=16)
def _rates(
    pieces: tuple[tuple[str, int], ...], device_ids: tuple[int, ...], topology: str
) -> Rates:
    ids = np.array(device_ids, dtype=np.int64)
    found, devices = topology_of(topology), int(ids.max()) + 1
    check_devices(found, devices)
    prices = prices_of(Network(found, devices), ids)
    digits = digits_of(pieces)
    speeds = {
        name: (size - 1) * LARGE / prices.all_gather((digits[name],), LARGE)
        for name, size in pieces
        if size > 1
    }
    if not speeds:
        return DEFAULT
    best = max(speeds.values())
    slow = tuple((name, best / speed) for name, speed in speeds.items())
    return Rates(found, best, slow, Pace(prices, digits, best))


def digits_of(pieces: tuple[tuple[str, int], ...]) -> dict[str, Pair]:
    """Return the digit (stride, size) of each piece in a mesh position."""
    sizes = [size for _, size in reversed(pieces)]
    strides = list(itertools.accumulate(sizes, operator.mul, initial=1))[: len(sizes)]
    return {
        name: (stride, size) for (name, size), stride in zip(pieces, reversed(strides), strict=True)
    }


@functools.cache
def _multiplied(topology: Topology, dtype: str) -> float:
    """Return the number of multiplications and additions per second. An unknown dtype counts as
    float32."""
    try:
        name = dtype_of(dtype)
    except InputError:
        name = "float32"
    return multiply_rate(topology, name)
