"""The devices of a reshard on a topology, and the time of the transfers between them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from shardwright.codegen.hardware.nccl import PROTOCOLS, Protocol
from shardwright.codegen.hardware.presets import is_processor
from shardwright.codegen.hardware.topology import Floats, Topology
from shardwright.ir.arrays import Integers

# The number of transfers to route at once: small enough to bound memory, large enough to make the
# overhead of calls negligible.
CHUNK = 1 << 21
# The maximum number of devices of a topology with a table of routes, which takes at most 12 MB.
TABLED = 64
# The maximum number of table entries to add up; for more entries, `Topology.load` is faster.
LOOKED_UP = 1 << 18
# The maximum number of links of all copies of a topology on which several steps are routed at once.
COPIED = 1 << 17


@dataclass(frozen=True)
class Flows:
    """Transfers between devices, as arrays [n]: device ids, and the amount of each transfer, in
    bytes unless stated otherwise."""

    sender: Integers
    receiver: Integers
    weight: Floats

    def chunks(self) -> Iterator[Flows]:
        """Yield the transfers in arrays of at most CHUNK."""
        for start in range(0, self.sender.size, CHUNK):
            part = slice(start, start + CHUNK)
            yield Flows(self.sender[part], self.receiver[part], self.weight[part])


@dataclass(frozen=True)
class Load:
    """The load of each link in one step: its number of messages and its number of bytes."""

    messages: Floats
    nbytes: Floats

    def __add__(self, other: Load) -> Load:
        return Load(self.messages + other.messages, self.nbytes + other.nbytes)

    def scaled(self, factor: float) -> Load:
        """Return the load with `factor` times the bytes."""
        return Load(self.messages, self.nbytes * factor)


@dataclass(frozen=True)
class Network:
    """A topology and `devices`, a number greater than every device id of the meshes."""

    topology: Topology
    devices: int

    @cached_property
    def is_processor(self) -> bool:
        """Whether the devices share one CPU."""
        return is_processor(self.topology)

    @cached_property
    def per_message(self) -> Floats:
        """The seconds per message on each link."""
        return self.topology.latencies(self.devices)

    @cached_property
    def per_byte(self) -> Floats:
        """The seconds per byte on each link."""
        return 1.0 / self.topology.bandwidths(self.devices)

    @cached_property
    def routes(self) -> Floats | None:
        """The share of a transfer on each link, [sender, receiver, links], or None for too many
        devices."""
        size = self.topology.size or self.devices
        return _routes(self.topology, self.devices) if size <= TABLED else None

    @cached_property
    def _legs(self) -> Floats:
        """The number of messages of a transfer between each pair of devices: [sender, receiver]."""
        device = np.arange(self.topology.size or self.devices)
        pairs = np.repeat(device, device.size), np.tile(device, device.size)
        return self.topology.messages(*pairs).reshape(device.size, device.size)

    def messages(self, sender: Integers, receiver: Integers) -> Floats:
        """Return the number of messages of each transfer."""
        if self.routes is None:
            return self.topology.messages(sender.ravel(), receiver.ravel()).reshape(sender.shape)
        legs: Floats = self._legs[sender, receiver]
        return legs

    def nothing(self) -> Load:
        """Return the load in which no link is busy."""
        return Load(np.zeros(self.per_byte.size), np.zeros(self.per_byte.size))

    def load(self, flows: Flows, messages: Floats | None = None) -> Load:
        """Return the load of transfers, none of which is local.

        `messages`: the number of messages of each transfer, [n], by default the number that the
        topology needs.
        """
        if messages is None:
            messages = self.messages(flows.sender, flows.receiver)
        alike = np.array_equal(messages, flows.weight)
        weights = messages[None] if alike else np.stack([messages, flows.weight])
        sender, receiver = flows.sender, flows.receiver
        if self.routes is not None and sender.size * self.per_byte.size <= LOOKED_UP:
            carried = weights @ self.routes[sender, receiver]
        else:
            carried = self.topology.load(sender, receiver, weights, self.devices)
        return Load(carried[0], carried[-1])

    def total(self, parts: Iterable[Flows]) -> Load:
        """Return the load of all transfers in a sequence of flows."""
        load = self.nothing()
        for part in parts:
            for chunk in part.chunks():
                load = load + self.load(chunk)
        return load

    def seconds_each(
        self, sender: Integers, receiver: Integers, moving: Floats, nbytes: float
    ) -> Floats:
        """Return the time of each of k steps of n transfers, in seconds.

        `sender`, `receiver`: device ids, [k, n]. `moving`: 1 for a transfer that carries `nbytes`
        bytes, 0 for none, [k, n].
        """
        if self.routes is None:
            rows = max(1, COPIED // self.per_byte.size)
            parts = (slice(first, first + rows) for first in range(0, len(sender), rows))
            each = (self._routed(sender[p], receiver[p], moving[p], nbytes) for p in parts)
            return np.concatenate([np.empty(0), *each])
        messages = moving * self.messages(sender, receiver)
        weights = np.stack([messages, moving * nbytes], axis=1)
        carried = weights @ self.routes[sender, receiver]
        latencies, times = carried[:, 0] * self.per_message, carried[:, 1] * self.per_byte
        return self._quickest(
            moving, lambda way: (way.message * latencies + way.byte * times).max(axis=1)
        )

    def _quickest(self, moving: Floats, seconds: Callable[[Protocol], Floats]) -> Floats:
        """Return the time of each step under its fastest protocol, in seconds; 0 if nothing
        moves. `seconds`: returns the seconds of the links in each step under a protocol."""
        each = [way.collective + seconds(way) for way in self.protocols]
        least: Floats = np.min(each, axis=0) * moving.any(axis=1)
        return least

    def _routed(
        self, sender: Integers, receiver: Integers, moving: Floats, nbytes: float
    ) -> Floats:
        """Compute `seconds_each` by routing each step on its own copy of the topology."""
        size = self.topology.size or self.devices
        topology, copy_of = self.topology.copies(len(sender), self.devices)
        beside = Network(topology, size * len(sender))
        first, moves = size * np.arange(len(sender))[:, None], moving > 0
        flows = Flows((sender + first)[moves], (receiver + first)[moves], np.ones(int(moves.sum())))
        load = beside.load(flows)

        def seconds(way: Protocol) -> Floats:
            busy = np.zeros(len(sender))
            carried = Load(load.messages * way.message, load.nbytes * nbytes * way.byte)
            np.maximum.at(busy, copy_of, beside.link_seconds(carried))
            return busy

        return self._quickest(moving, seconds)

    def link_seconds(self, load: Load) -> Floats:
        """Return the time for which each link is busy, in seconds."""
        busy: Floats = load.messages * self.per_message + load.nbytes * self.per_byte
        return busy

    def seconds(self, load: Load) -> float:
        """Return the time for which the busiest link is busy, in seconds."""
        return float(self.link_seconds(load).max(initial=0.0))

    @cached_property
    def protocols(self) -> tuple[Protocol, ...]:
        """The protocols of the platform's library of collectives: `collective` is in seconds here,
        and `message` and `byte` are factors."""
        own = self.topology.collective
        ways = (replace(each, collective=own * each.collective) for each in PROTOCOLS)
        return tuple(ways) if own else (Protocol(0.0, 1.0, 1.0),)

    def collective_seconds(self, load: Load) -> float:
        """Return the time of a collective of the platform's library with this load, in seconds."""
        if not load.messages.any():
            return 0.0
        return min(
            each.collective
            + self.seconds(Load(load.messages * each.message, load.nbytes * each.byte))
            for each in self.protocols
        )


@functools.lru_cache(maxsize=2)
def _routes(topology: Topology, devices: int) -> Floats:
    return topology.routes(devices)
