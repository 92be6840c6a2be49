"""The time of rounds in which devices forward data, without waiting for all devices between rounds.

A device performs its steps in order. Before a step, it waits for the data that it forwards, and for
a signal that its destination is free. A link carries the sends of steps in order. A round therefore
begins on idle links while the previous round still uses other links.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from shardwright.codegen.hardware.topology import Floats
from shardwright.codegen.moves.network.links import Flows, Network


@dataclass(frozen=True)
class Step:
    """The sends of all devices in one step. Steps are numbered over all rounds.

    `come`: the earlier steps that deliver the data that this step sends. `left`: the steps that
    empty the destination.
    `share`: the fraction of a message that this step sends, if several steps send chunks of it and
    share the latency of each link.
    """

    flows: Flows
    come: tuple[int, ...] = ()
    left: tuple[int, ...] = ()
    share: float = 1.0


@dataclass
class Forwarding:
    """The times of the steps so far, in seconds.

    `ready`: when devices began the last step. `copied`: the bytes that a device read and wrote in
    HBM. `ended`: the end of all rounds. `done`: when the data of each step arrived. `idle`: when
    each link becomes idle.
    """

    network: Network
    ready: float = 0.0
    copied: float = 0.0
    ended: float = 0.0
    done: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.idle: Floats = np.zeros(self.network.per_byte.size)

    def round(self, steps: Iterable[Step], copied: float) -> float:
        """Add the steps of a round, and return by how many seconds they delay the end. `copied`:
        the bytes that a device reads and writes in HBM during the round."""
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
