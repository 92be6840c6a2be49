"""Detours: forwarding tiles although every device could send to its receivers directly.

Routers traverse the axes of a torus in a fixed order, so many routes may share one link while
others are idle: in a transpose, all data for a row passes through one column. Forwarding changes
that order: a device first sends the tile along another axis, to a device that forwards it. A tile
travels the full distance along each axis at once, or in hops as on a v5e. If many devices need the
same tile, forwarding lets each link carry the tile only once.
"""

from __future__ import annotations

import numpy as np

from shardwright.codegen.hardware.torus import Torus
from shardwright.codegen.moves.network.flows import flows
from shardwright.ir.exchange import Exchange

MOST_DEVICES = 512
"""The largest number of devices for which detours are tried: with more, the search takes too
long."""


def at_least(exchange: Exchange, itemsize: int, torus: Torus) -> float:
    """Return a lower bound on the seconds of an exchange: the time in which the data that a device
    lacks can arrive over all its links in parallel."""
    into = np.zeros(torus.size)
    for part in flows(exchange, itemsize):
        into += np.bincount(part.receiver, part.weight, torus.size)
    ways = torus.ingest_of(np.arange(torus.size))
    return torus.least_latency + float((into / ways).max())
