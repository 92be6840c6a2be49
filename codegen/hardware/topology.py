"""Topologies: the links between devices and the routes of transfers.

A link is one-way and carries its messages in sequence: each costs a latency, each byte 1/bandwidth
seconds. `load` routes any number of transfers at once and returns the load of every link; it is
linear in the weights, so the same call counts bytes and messages.

    switch        a link out of and a link into every device; full bisection between (NVSwitch)
    torus         devices in a grid of up to four axes, links to the neighbours along each, with or
                  without wrap; a transfer goes the shorter way, axis by axis, and half of it each
                  way where both are as long
    hierarchical  hosts of equal size; a switch within each, a link out of and into every host

Devices are numbered 0 to size - 1: those of a host consecutively, those of a grid along its first
axis first, like JAX's TPU devices. A mesh with another device order states its `device_ids`.

Known about routers: on v5e a device sends directly only to a power-of-two offset (JAX's guide to
distributed Pallas, "Routing"). Assumed: transfers traverse the axes of a torus in order and the
shorter way along each, half each way if both are equal; all links of a route are busy for the whole
transfer (no header, no contention except for links); a switch has full bisection; steps do not
overlap.

`memory`: bytes a second that a device's HBM reads and writes, 0 if copies are not counted.
`launch`: fixed seconds of a call; `kernel`: fixed seconds of each of its kernels; `collective`:
fixed seconds of each library collective besides its messages (`nccl.py`), 0 if there are none.
`multiplies`: multiplications and
additions of float32 a second, other types in proportion to the peaks of the device; 0 to use these
peaks (`rates.py`). `device`: the preset of the devices, if other figures differ from it. `ragged`:
the row granularity in bytes of XLA's ragged all-to-all; 0 if there is none, or the text does not
name the platform.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from shardwright.codegen.hardware.torus import Floats, Torus, figures, of_device, optional
from shardwright.ir.arrays import Integers

__all__ = ["Floats", "Hierarchical", "Switch", "Topology", "Torus"]


@dataclass(frozen=True)
class Switch:
    """`bandwidth`: bytes per second out of a device, and into it; `latency`: seconds per message.

    `size` None is a switch for any number of devices.
    """

    size: int | None
    bandwidth: float
    latency: float
    ragged: int = 0
    memory: float = 0.0
    launch: float = 0.0
    kernel: float = 0.0
    collective: float = 0.0
    multiplies: float = 0.0
    device: str = ""

    def bandwidths(self, devices: int) -> Floats:
        """Return the bandwidth of every link; `devices` is one above the largest device id."""
        return np.full(2 * (self.size or devices), self.bandwidth)

    def latencies(self, devices: int) -> Floats:
        """Return the latency of every link."""
        return np.full(2 * (self.size or devices), self.latency)

    @property
    def ingest(self) -> float:
        """The most bytes per second into a device."""
        return self.bandwidth

    def ingest_of(self, device: Integers) -> Floats:
        """Return the most bytes per second into each device."""
        return np.full(device.shape, self.bandwidth)

    @property
    def fastest(self) -> float:
        """The most bytes per second of one transfer."""
        return self.bandwidth

    @property
    def least_latency(self) -> float:
        """The latency of a link."""
        return self.latency

    def load(self, sender: Integers, receiver: Integers, weight: Floats, devices: int) -> Floats:
        """Return the load of every link: `weight` [k, n], k weights of each transfer, summed over
        the transfers on the link: [k, links]."""
        size = self.size or devices
        ends = [_count(end, weight, size) for end in (sender, receiver)]
        return np.concatenate(ends, axis=1)

    def all_pairs(self, groups: Integers, devices: int) -> Floats:
        """Return the load of every link if each device sends one unit to every other of its group,
        a row of `groups` [groups, n]."""
        busy = np.bincount(groups.ravel(), minlength=self.size or devices) * (groups.shape[1] - 1.0)
        return np.concatenate([busy, busy])

    def messages(self, sender: Integers, receiver: Integers) -> Floats:
        """Return the number of messages of each transfer."""
        return np.ones(sender.shape)

    def routes(self, devices: int) -> Floats:
        """Return the share of a transfer from device i to device j on each link: [i, j, links].

        For few devices, where a table is faster than `load`.
        """
        size = self.size or devices
        return _ends(size)

    def copies(self, count: int, devices: int) -> tuple[Switch, Integers]:
        """Return this many copies side by side, with devices numbered on, and the copy of each
        link."""
        size = self.size or devices
        return replace(self, size=size * count), np.tile(np.repeat(np.arange(count), size), 2)

    def coordinates(self, device: Integers) -> Integers:
        """Return the coordinates of devices, [n, axes]: devices with equal coordinates are reached
        alike."""
        return device[:, None]

    def __str__(self) -> str:
        size = "" if self.size is None else f":{self.size}"
        said = figures(bandwidth=self.bandwidth, latency=self.latency)
        return f"switch{size},{said}{optional(ragged=self.ragged)}{of_device(self)}"


@dataclass(frozen=True)
class Hierarchical:
    """`hosts` hosts of `host_size` devices; `between_*` are the figures of a host's two links."""

    hosts: int
    host_size: int
    bandwidth: float
    latency: float
    between_bandwidth: float
    between_latency: float
    ragged: int = 0
    memory: float = 0.0
    launch: float = 0.0
    kernel: float = 0.0
    collective: float = 0.0
    multiplies: float = 0.0
    device: str = ""

    @property
    def size(self) -> int:
        return self.hosts * self.host_size

    def bandwidths(self, devices: int) -> Floats:
        """Return the bandwidth of every link."""
        return self._per_link(self.bandwidth, self.between_bandwidth)

    def latencies(self, devices: int) -> Floats:
        """Return the latency of every link."""
        return self._per_link(self.latency, self.between_latency)

    def _per_link(self, device: float, host: float) -> Floats:
        return np.repeat([device, host], [2 * self.size, 2 * self.hosts])

    @property
    def ingest(self) -> float:
        """The most bytes per second into a device."""
        return self.bandwidth

    def ingest_of(self, device: Integers) -> Floats:
        """Return the most bytes per second into each device."""
        return np.full(device.shape, self.bandwidth)

    @property
    def fastest(self) -> float:
        """The most bytes per second of one transfer."""
        return self.bandwidth

    @property
    def least_latency(self) -> float:
        """The smallest latency of a link."""
        return min(self.latency, self.between_latency)

    def load(self, sender: Integers, receiver: Integers, weight: Floats, devices: int) -> Floats:
        """Return the load of every link: devices out, devices in, hosts out, hosts in."""
        out, into = sender // self.host_size, receiver // self.host_size
        far = np.where(out != into, weight, 0.0)
        return np.concatenate(
            [
                _count(sender, weight, self.size),
                _count(receiver, weight, self.size),
                _count(out, far, self.hosts),
                _count(into, far, self.hosts),
            ],
            axis=1,
        )

    def all_pairs(self, groups: Integers, devices: int) -> Floats:
        """Return the load of every link if each device sends one unit to every other of its group,
        a row of `groups` [groups, n]."""
        count, members = groups.shape
        busy = np.bincount(groups.ravel(), minlength=self.size) * (members - 1.0)
        row = np.arange(count)[:, None] * self.hosts
        each = np.bincount((row + groups // self.host_size).ravel(), minlength=count * self.hosts)
        far = (each * (members - each)).reshape(count, self.hosts).sum(axis=0).astype(np.float64)
        return np.concatenate([busy, busy, far, far])

    def messages(self, sender: Integers, receiver: Integers) -> Floats:
        """Return the number of messages of each transfer."""
        return np.ones(sender.shape)

    def routes(self, devices: int) -> Floats:
        """Return the share of a transfer from device i to device j on each link: [i, j, links].

        For few devices, where a table is faster than `load`.
        """
        host = np.arange(self.size) // self.host_size
        far = host[:, None] != host[None, :]
        between = _ends(self.hosts)[host][:, host] * far[:, :, None]
        return np.concatenate([_ends(self.size), between], axis=2)

    def copies(self, count: int, devices: int) -> tuple[Hierarchical, Integers]:
        """Return this many copies side by side, with devices numbered on, and the copy of each
        link."""
        ends = (self.size, self.size, self.hosts, self.hosts)
        links = np.concatenate([np.repeat(np.arange(count), end) for end in ends])
        return replace(self, hosts=self.hosts * count), links

    def coordinates(self, device: Integers) -> Integers:
        """Return the host of a device and its place within the host."""
        return np.stack([device // self.host_size, device % self.host_size], axis=1)

    def __str__(self) -> str:
        said = figures(
            bandwidth=self.bandwidth,
            latency=self.latency,
            between_bandwidth=self.between_bandwidth,
            between_latency=self.between_latency,
        )
        more = optional(ragged=self.ragged) + of_device(self)
        return f"hierarchical:{self.hosts}x{self.host_size},{said}{more}"


Topology: TypeAlias = Switch | Torus | Hierarchical


def _count(links: Integers, weight: Floats, size: int) -> Floats:
    return np.stack([np.bincount(links, row, size) for row in weight])


def _ends(size: int) -> Floats:
    """Return the links out of and into the ports of a switch: [sender, receiver, links]."""
    own = np.eye(size)
    shape = (size, size, size)
    out, into = np.broadcast_to(own[:, None], shape), np.broadcast_to(own[None], shape)
    return np.concatenate([out, into], axis=2)
