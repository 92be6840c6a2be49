"""The time of forwarding devices, in rounds that do not wait for each other.

A device makes its steps in order. Before each step it waits for the data to forward, and for a
signal that its destination is free. A link carries the sends of steps in order. So a round begins
on idle links while the previous round still uses others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from shardwright.codegen.hardware.topology import Floats
from shardwright.codegen.planner.network.links import Flows, Network


@dataclass(frozen=True)
class Step:
    """The sends of all devices in one step. `come`: the steps, numbered over all rounds, that bring
    the data; `left`: the steps that empty its destination; `share`: the fraction of each message,
    if messages are sent in chunks that share one start-up per link."""

    flows: Flows
    come: tuple[int, ...] = ()
    left: tuple[int, ...] = ()
    share: float = 1.0


@dataclass
class Forwarding:
    """The steps so far. `ready`: when each device reached the last step; `done`: when each step
    arrived at its receivers; `idle`: when each link becomes idle; `copied`: bytes of HBM."""

    network: Network
    ready: float = 0.0
    copied: float = 0.0
    ended: float = 0.0
    done: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.idle: Floats = np.zeros(self.network.per_byte.size)

    def round(self, steps: Iterable[Step], copied: float) -> float:
        """Add the steps of a round, and return by how much it delays the end."""
        for step in steps:
            self._make(step)
        self.copied += copied
        memory = self.network.topology.memory
        over = max(self.done, default=0.0)
        before = self.ended
        self.ended = max(before, over, self.copied / memory if memory else 0.0)
        return self.ended - before

    def _make(self, step: Step) -> None:
        signal = float(self.network.per_message.max(initial=0.0))
        come = (self.done[number] for number in step.come)
        told = (self.done[number] for number in step.left)
        self.ready = max(self.ready, *come, *told, self.ready)
        load = self.network.total((step.flows,))
        busy = self.network.link_seconds(replace(load, messages=load.messages * step.share))
        used = busy > 0
        self.idle[used] = np.maximum(self.idle[used], self.ready) + busy[used]
        over = float(self.idle[used].max(initial=self.ready))
        self.done.append(over + signal * (1 - step.share))
