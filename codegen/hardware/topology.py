"""Topologies: the links between devices and the routes of transfers.

A link is one-way and carries its messages in sequence. Each message takes a latency, and each byte
takes 1/bandwidth seconds. `load` routes any number of transfers at once and returns the load of
every link. It is linear in the weights of transfers, so one call counts bytes and messages.

    switch        a link out of every device and a link into every device (NVSwitch)
    torus         devices in a grid of up to four axes, with links between neighbours along each,
                  and with or without a link between the ends of an axis
    hierarchical  hosts of equal size, with a switch in each, a link out of every host and a link
                  into every host

Devices are numbered 0 to size - 1: consecutively within a host, and along the first axis of a grid
first, as in JAX on TPUs. A mesh with a different device order states its `device_ids`.

On v5e, a device sends directly only over a power of two of hops (JAX's guide to distributed Pallas,
"Routing"). The rest is assumed: a transfer traverses the axes of a torus in order, and the shorter
way along each, or half of it each way if both are equally long. All links of a route are busy for
the whole transfer, messages have no headers, and only links limit transfers. A switch has full
bisection bandwidth. Steps do not overlap.

All topologies have these fields, which are 0 if unknown or not counted. `memory`: the bytes per
second that a device reads and writes in HBM. `launch`: the fixed seconds of a call. `kernel`: the
fixed seconds of each kernel. `collective`: the fixed seconds of each collective of the platform's
library in addition to its messages (`nccl.py`). `multiplies`: the multiplications and additions of
float32 per second, which also scale the rates of the other types; 0 for the peak rates
(`rates.py`). `device`: the preset that the devices come from, if a user changed any of its numbers.
`ragged`: the granularity in bytes of rows in XLA's ragged all-to-all; 0 if the platform has none.
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
    """A switch. `size`: the number of devices, None if unlimited. `bandwidth`: the bytes per
    second out of a device, and also into it. `latency`: the seconds per message."""

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
        """Return the bytes per second of every link. `devices`: one above the largest device id."""
        return np.full(2 * (self.size or devices), self.bandwidth)

    def latencies(self, devices: int) -> Floats:
        """Return the seconds per message of every link."""
        return np.full(2 * (self.size or devices), self.latency)

    @property
    def ingest(self) -> float:
        """The maximum bytes per second that a device can receive."""
        return self.bandwidth

    def ingest_of(self, device: Integers) -> Floats:
        """Return the maximum bytes per second that each device can receive."""
        return np.full(device.shape, self.bandwidth)

    @property
    def fastest(self) -> float:
        """The maximum bytes per second of one transfer."""
        return self.bandwidth

    @property
    def least_latency(self) -> float:
        """The smallest latency of a link, in seconds."""
        return self.latency

    def load(self, sender: Integers, receiver: Integers, weight: Floats, devices: int) -> Floats:
        """Return the load of every link, [k, links]: the sum of the weights of its transfers.
        `sender`, `receiver`: device ids [n]. `weight`: k weights of each transfer, [k, n]."""
        size = self.size or devices
        ends = [_count(end, weight, size) for end in (sender, receiver)]
        return np.concatenate(ends, axis=1)

    def all_pairs(self, groups: Integers, devices: int) -> Floats:
        """Return the load of every link if each device sends one unit to every other device of its
        group. `groups`: the device ids, one row per group, [groups, n]."""
        busy = np.bincount(groups.ravel(), minlength=self.size or devices) * (groups.shape[1] - 1.0)
        return np.concatenate([busy, busy])

    def messages(self, sender: Integers, receiver: Integers) -> Floats:
        """Return the number of messages of each transfer: one."""
        return np.ones(sender.shape)

    def routes(self, devices: int) -> Floats:
        """Return the share of a transfer from device i to device j on each link: [i, j, links].

        For few devices, this table is faster than `load`.
        """
        size = self.size or devices
        return _ends(size)

    def copies(self, count: int, devices: int) -> tuple[Switch, Integers]:
        """Return `count` unconnected copies as one topology, and the index of the copy that each
        link belongs to. The devices of a copy are numbered after those of the previous copy."""
        size = self.size or devices
        return replace(self, size=size * count), np.tile(np.repeat(np.arange(count), size), 2)

    def coordinates(self, device: Integers) -> Integers:
        """Return the coordinates of devices in the topology, [n, axes]."""
        return device[:, None]

    def __str__(self) -> str:
        size = "" if self.size is None else f":{self.size}"
        said = figures(bandwidth=self.bandwidth, latency=self.latency)
        return f"switch{size},{said}{optional(ragged=self.ragged)}{of_device(self)}"


@dataclass(frozen=True)
class Hierarchical:
    """`hosts` hosts with a switch for `host_size` devices each. `between_bandwidth`,
    `between_latency`: the bytes per second and the seconds per message of a host's two links."""

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
        """Return the bytes per second of every link."""
        return self._per_link(self.bandwidth, self.between_bandwidth)

    def latencies(self, devices: int) -> Floats:
        """Return the seconds per message of every link."""
        return self._per_link(self.latency, self.between_latency)

    def _per_link(self, device: float, host: float) -> Floats:
        return np.repeat([device, host], [2 * self.size, 2 * self.hosts])

    @property
    def ingest(self) -> float:
        """The maximum bytes per second that a device can receive."""
        return self.bandwidth

    def ingest_of(self, device: Integers) -> Floats:
        """Return the maximum bytes per second that each device can receive."""
        return np.full(device.shape, self.bandwidth)

    @property
    def fastest(self) -> float:
        """The maximum bytes per second of one transfer."""
        return self.bandwidth

    @property
    def least_latency(self) -> float:
        """The smallest latency of a link, in seconds."""
        return min(self.latency, self.between_latency)

    def load(self, sender: Integers, receiver: Integers, weight: Floats, devices: int) -> Floats:
        """Return the load of every link, [k, links]: first the links out of devices, then into
        devices, out of hosts and into hosts. `weight`: k weights of each transfer, [k, n]."""
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
        """Return the load of every link if each device sends one unit to every other device of its
        group. `groups`: the device ids, one row per group, [groups, n]."""
        count, members = groups.shape
        busy = np.bincount(groups.ravel(), minlength=self.size) * (members - 1.0)
        row = np.arange(count)[:, None] * self.hosts
        each = np.bincount((row + groups // self.host_size).ravel(), minlength=count * self.hosts)
        far = (each * (members - each)).reshape(count, self.hosts).sum(axis=0).astype(np.float64)
        return np.concatenate([busy, busy, far, far])

    def messages(self, sender: Integers, receiver: Integers) -> Floats:
        """Return the number of messages of each transfer: one."""
        return np.ones(sender.shape)

    def routes(self, devices: int) -> Floats:
        """Return the share of a transfer from device i to device j on each link: [i, j, links].

        For few devices, this table is faster than `load`.
        """
        host = np.arange(self.size) // self.host_size
        far = host[:, None] != host[None, :]
        between = _ends(self.hosts)[host][:, host] * far[:, :, None]
        return np.concatenate([_ends(self.size), between], axis=2)

    def copies(self, count: int, devices: int) -> tuple[Hierarchical, Integers]:
        """Return `count` unconnected copies as one topology, and the index of the copy that each
        link belongs to. The devices of a copy are numbered after those of the previous copy."""
        ends = (self.size, self.size, self.hosts, self.hosts)
        links = np.concatenate([np.repeat(np.arange(count), end) for end in ends])
        return replace(self, hosts=self.hosts * count), links

    def coordinates(self, device: Integers) -> Integers:
        """Return the host of each device and its number within the host: [n, 2]."""
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
    """Return the share of a transfer on each link of a switch: [sender, receiver, links]."""
    own = np.eye(size)
    shape = (size, size, size)
    out, into = np.broadcast_to(own[:, None], shape), np.broadcast_to(own[None], shape)
    return np.concatenate([out, into], axis=2)
