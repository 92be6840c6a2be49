"""How long devices take that pass on what comes, in rounds of which none waits for the one before.

A device takes its steps in order. Before one it waits until what it sends on has come, and until
those it sends to have said that the place is free; a link carries what steps send over it in their
order. So a round begins on links that are idle while the one before is under way on others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from shardwright.codegen.hardware.topology import Floats
from shardwright.codegen.planner.network.links import Flows, Network


@dataclass(frozen=True)
class Step:
    """What all devices send at one of their steps. `come`: the numbers of the steps, of all rounds,
    that bring what is sent; `left`: of those that empty the places that it comes to; `share`: how
    much of each message it is, where that goes in chunks: links take one start-up of all."""

    flows: Flows
    come: tuple[int, ...] = ()
    left: tuple[int, ...] = ()
    share: float = 1.0


@dataclass
class Forwarding:
    """Steps as they are made. `ready`: when devices have come to the last; `done`: when each has
    come to its receivers; `idle`: when each link has carried all; `copied`: bytes of HBM."""

    network: Network
    ready: float = 0.0
    copied: float = 0.0
    ended: float = 0.0
    done: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.idle: Floats = np.zeros(self.network.per_byte.size)

    def round(self, steps: Iterable[Step], copied: float) -> float:
        """Make the steps of a round; return how much later all is over than before it."""
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
