"""Where all receivers are in reach, and yet tiles had better turn off on their way.

Routers take the axes of a torus in one order, so that pairs whose ways cross may share one link
while others lie idle: of a transpose all that goes to a row is in one column first. A device that
sends a tile along another axis first, to one that sends it on, takes the axes in another order.
It goes along each axis at once, as far as it has to, or by such hops as on a v5e.
And where many want one tile, each link need carry it once only.
"""

from __future__ import annotations

import numpy as np

from shardwright.codegen.hardware.torus import Torus
from shardwright.codegen.planner.network.flows import flows
from shardwright.ir.exchange import Exchange

MOST_DEVICES = 512
"""Devices, at most, whose schedules are tried: more take too long to find."""


def at_least(exchange: Exchange, itemsize: int, torus: Torus) -> float:
    """Return seconds that any way to move an exchange takes: all that a device lacks comes over its
    links at once."""
    into = np.zeros(torus.size)
    for part in flows(exchange, itemsize):
        into += np.bincount(part.receiver, part.weight, torus.size)
    ways = torus.ingest_of(np.arange(torus.size))
    return torus.least_latency + float((into / ways).max())
