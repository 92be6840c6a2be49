"""A torus: devices in a grid with links to their neighbours. `topology.py` describes the routes.

Devices are numbered along the first axis first, like JAX's TPU devices: in a 2x4 grid, device 1 is
at (1, 0) and device 2 at (0, 1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from shardwright.ir.arrays import Integers

Floats: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Torus:
    """A grid of devices. `topology.py` describes the fields that all topologies have.

    `dims`: the number of devices along each axis. `wrap`: whether the ends of each axis are linked.
    `bandwidth`: the bytes per second between neighbours, each way. `latency`: the seconds per
    message. `powers_of_two`: whether a device sends directly only over 1, 2, 4, ... hops along an
    axis (v5e); messages over other distances are relayed, in one send per 1 in the binary form of
    the distance. `core_bandwidth`: if above 0, the first axis numbers the cores of a chip, and this
    is the bytes per second between them; `bandwidth` is then the share of one core.
    """

    dims: tuple[int, ...]
    wrap: tuple[bool, ...]
    bandwidth: float
    latency: float
    powers_of_two: bool = False
    ragged: int = 0
    core_bandwidth: float = 0.0
    memory: float = 0.0
    launch: float = 0.0
    kernel: float = 0.0
    collective: float = 0.0
    multiplies: float = 0.0
    device: str = ""

    @property
    def size(self) -> int:
        return math.prod(self.dims)

    def bandwidths(self, devices: int) -> Floats:
        """Return the bytes per second of every link. Links are in the order of the axes: for each
        axis the upward link of every device, then the downward links."""
        return np.repeat(list(map(self._bandwidth, range(len(self.dims)))), 2 * self.size)

    def _bandwidth(self, axis: int) -> float:
        return self.core_bandwidth if axis == 0 and self.core_bandwidth else self.bandwidth

    def latencies(self, devices: int) -> Floats:
        """Return the seconds per message of every link."""
        return np.full(2 * len(self.dims) * self.size, self.latency)

    @property
    def ingest(self) -> float:
        """The maximum bytes per second that a device can receive over all its links."""
        each = (self._most_links(axis) * self._bandwidth(axis) for axis in range(len(self.dims)))
        return max(self.bandwidth, sum(each))

    def _most_links(self, axis: int) -> int:
        """Return the largest number of links along an axis into one device. Two devices on an axis
        that wraps have two links each."""
        size = self.dims[axis]
        return 2 if self.wrap[axis] and size > 1 else min(2, size - 1)

    def ingest_of(self, device: Integers) -> Floats:
        """Return the maximum bytes per second that each device can receive. Without a wrap, devices
        at the ends of an axis have fewer links."""
        rates = np.zeros(device.shape)
        place = self.coordinates(device)
        for axis, size in enumerate(self.dims):
            at = place[:, axis]
            up, down = (at < size - 1), (at > 0)
            links = self._most_links(axis) if self.wrap[axis] else up.astype(float) + down
            rates += links * self._bandwidth(axis)
        return np.maximum(rates, self.bandwidth)

    @property
    def fastest(self) -> float:
        """The maximum bytes per second of one transfer along one axis. A transfer that goes
        halfway around an axis uses both directions."""
        each = (
            self._bandwidth(axis) * (2 if self._halves(axis) else 1)
            for axis, size in enumerate(self.dims)
            if size > 1
        )
        return max(each, default=self.bandwidth)

    @property
    def least_latency(self) -> float:
        """The smallest latency of a message, in seconds. A message that goes halfway around an
        axis is divided between both directions, which halves its latency on each link."""
        halved = any(map(self._halves, range(len(self.dims))))
        return self.latency / 2 if halved else self.latency

    def _halves(self, axis: int) -> bool:
        return self.wrap[axis] and self.dims[axis] % 2 == 0

    def coordinates(self, device: Integers) -> Integers:
        """Return the coordinates of devices in the grid: [n, axes]."""
        return np.stack(np.unravel_index(device, self.dims, "F"), axis=1).astype(np.int64)

    def load(
        self,
        sender: Integers,
        receiver: Integers,
        weight: Floats,
        devices: int,
        order: Sequence[int] = (),
    ) -> Floats:
        """Return the load of every link, [k, links]: the sum of the weights of its transfers.

        `weight`: k weights of each transfer, [k, n]. `order`: the order in which transfers traverse
        the axes, by default ascending.
        """
        loads: dict[int, tuple[Floats, Floats]] = {}
        grid = self.coordinates(np.arange(self.size))
        place = sender
        for axis in order or range(len(self.dims)):
            size = self.dims[axis]
            stride = math.prod(self.dims[:axis])
            stop = grid[:, axis][receiver]
            at, to, carried = place, stop, weight
            # Many transfers have the same ends along this axis; add their weights first.
            if place.size > self.size * size:
                key = place * size + stop
                carried = np.stack([np.bincount(key, row, self.size * size) for row in weight])
                at, to = np.divmod(np.arange(self.size * size), size)
            loads[axis] = self._axis_load(axis, stride, at, to, carried)
            place = place + (stop - grid[:, axis][place]) * stride
        return np.concatenate([each for axis in sorted(loads) for each in loads[axis]], axis=1)

    def routes(self, devices: int) -> Floats:
        """Return the share of a transfer from device i to device j on each link: [i, j, links].

        For few devices, this table is faster than `load`.
        """
        size, count = self.size, len(self.dims)
        routes = np.zeros((size, size, count, 2, size))
        device = np.arange(size)
        sender, receiver = device[:, None, None], device[None, :, None]
        for axis, extent in enumerate(self.dims):
            stride = math.prod(self.dims[:axis])
            link = np.arange(extent)
            start, stop = sender // stride % extent, receiver // stride % extent
            up, down = self.hops(axis, start, stop)
            share = np.where(up > 0, 1.0, 0.0)
            if self.wrap[axis]:
                share = np.where(up < down, 1.0, np.where(up > down, 0.0, 0.5))
            # On this axis, transfers have already traversed the earlier axes, but not the later
            # ones.
            line = sender // (stride * extent) * (stride * extent) + receiver % stride
            at = line + link * stride
            upwards = ((link - start) % extent < up) * share
            downwards = ((start - link) % extent < down) * (1.0 - share)
            routes[sender, receiver, axis, 0, at] = upwards
            routes[sender, receiver, axis, 1, at] = downwards
        return routes.reshape(size, size, -1)

    def hops(self, axis: int, start: Integers, stop: Integers) -> tuple[Integers, Integers]:
        """Return the numbers of hops along an axis from `start` to `stop`, upwards and downwards.
        Without a wrap, the hops in the wrong direction are 0."""
        size = self.dims[axis]
        up = (stop - start) % size if self.wrap[axis] else np.maximum(stop - start, 0)
        down = (start - stop) % size if self.wrap[axis] else np.maximum(start - stop, 0)
        return up, down

    def copies(self, count: int, devices: int) -> tuple[Torus, Integers]:
        """Return `count` unconnected copies as one topology, and the index of the copy that each
        link belongs to. The devices of a copy are numbered after those of the previous copy."""
        links = np.tile(np.repeat(np.arange(count), self.size), 2 * len(self.dims) + 2)
        return replace(self, dims=(*self.dims, count), wrap=(*self.wrap, False)), links

    def messages(self, sender: Integers, receiver: Integers) -> Floats:
        """Return the number of messages of each transfer: one, or with `powers_of_two` one for each
        direct send on its route."""
        if not self.powers_of_two:
            return np.ones(sender.shape)
        start, stop = self.coordinates(sender), self.coordinates(receiver)
        legs = np.zeros(sender.shape)
        for axis in range(len(self.dims)):
            up, down = self.hops(axis, start[:, axis], stop[:, axis])
            distance = np.minimum(up, down) if self.wrap[axis] else up + down
            legs += np.bitwise_count(distance)
        return np.maximum(legs, 1.0)

    def _axis_load(
        self, axis: int, stride: int, place: Integers, stop: Integers, weight: Floats
    ) -> tuple[Floats, Floats]:
        """Return the loads of the upward and of the downward links along an axis, [k, devices]
        each, by the device that the link leaves."""
        size = self.dims[axis]
        start = place // stride % size
        line = place // (size * stride) * stride + place % stride
        up, down = self.hops(axis, start, stop)
        share = np.where(up > 0, 1.0, 0.0)
        if self.wrap[axis]:
            share = np.where(up < down, 1.0, np.where(up > down, 0.0, 0.5))
        upwards = self._runs(axis, stride, line, start, up, weight * share)
        # A downward transfer from a to b crosses the links that start at a, a-1, ..., b+1.
        downwards = self._runs(axis, stride, line, stop + 1, down, weight * (1 - share))
        return upwards, downwards

    def _runs(
        self, axis: int, stride: int, line: Integers, first: Integers, count: Integers, w: Floats
    ) -> Floats:
        """Return the loads of links along an axis, [weights, links].

        Transfer i adds `w[:, i]` to `count[i]` links of line `line[i]`, from coordinate `first[i]`
        on, modulo the axis. The loads are cumulative sums of their differences.
        """
        if not count.any():
            return np.zeros((len(w), self.size))
        size, lines = self.dims[axis], self.size // self.dims[axis]
        begin = first % size
        end = begin + count
        over = np.maximum(end - size, 0)
        loads = []
        for row in w:
            wrapped = np.where(over > 0, row, 0.0)
            steps = np.bincount(begin * lines + line, row, (size + 1) * lines)
            steps -= np.bincount(np.minimum(end, size) * lines + line, row, steps.size)
            steps += np.bincount(line, wrapped, steps.size)
            steps -= np.bincount(over * lines + line, wrapped, steps.size)
            carried = np.cumsum(steps.reshape(size + 1, lines), axis=0)[:size]
            grid = carried.reshape(size, lines // stride, stride)
            loads.append(np.ascontiguousarray(grid.transpose(1, 0, 2)).ravel())
        return np.stack(loads)

    def __str__(self) -> str:
        dims = "x".join(map(str, self.dims))
        wrap = "x".join("1" if wraps else "0" for wraps in self.wrap)
        cores = {"core_bandwidth": self.core_bandwidth} if self.core_bandwidth else {}
        said = figures(bandwidth=self.bandwidth, latency=self.latency, **cores)
        own = optional(powers_of_two=self.powers_of_two, ragged=self.ragged)
        return f"torus:{dims},wrap={wrap},{said}{own}{of_device(self)}"


def figures(**values: float) -> str:
    """Return the numbers of a topology as `key=value`, joined by commas."""
    return ",".join(f"{name}={_number(value)}" for name, value in values.items())


def optional(**values: float) -> str:
    """Return `,key=value` for each nonzero number of a topology."""
    return "".join(f",{name}={_number(+value)}" for name, value in values.items() if value)


class Device(Protocol):
    """The fields of all topologies that describe a device (see `topology.py`)."""

    @property
    def memory(self) -> float: ...
    @property
    def launch(self) -> float: ...
    @property
    def kernel(self) -> float: ...
    @property
    def collective(self) -> float: ...
    @property
    def multiplies(self) -> float: ...
    @property
    def device(self) -> str: ...


def of_device(topology: Device) -> str:
    """Return the text of the fields that describe the device: `,key=value` for each that is set."""
    names = ("memory", "launch", "kernel", "collective", "multiplies")
    said = optional(**{name: getattr(topology, name) for name in names})
    return said + (f",device={topology.device}" if topology.device else "")


def _number(value: float) -> str:
    short = f"{value:g}"
    return short if float(short) == value else repr(value)
