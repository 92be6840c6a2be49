"""Where all receivers are in reach, and yet tiles had better turn off on their way.

Routers take the axes of a torus in one order, so that pairs whose ways cross may share one link
while others lie idle: of a transpose all that goes to a row is in one column first. A device that
sends a tile along another axis first, to one that sends it on, takes the axes in another order.
It goes along each axis at once, as far as it has to, or by such hops as on a v5e.
And where many want one tile, each link need carry it once only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shardwright.codegen.hardware.topology import Floats
from shardwright.codegen.hardware.torus import Torus
from shardwright.codegen.planner.network.flows import flows
from shardwright.ir.exchange import Exchange

MOST_DEVICES = 512
"""Devices, at most, whose schedules are tried: more take too long to find."""
IDLE = 1.05
"""How many times more the busiest link carries than if all orders of axes had a part of each tile,
at least, where another way is tried."""


MARGIN = 1.05
"""How many times more sending directly takes, at least, where tiles turn off: all is estimated."""


@dataclass(frozen=True)
class Detour:
    """What a form that forwards takes by the model, what the best that sends directly takes, and
    the cost of that."""

    seconds: float
    straight: float
    direct_cost: int

    @property
    def cost(self) -> int:
        """The cost of sending directly, as many times as this takes longer, and the margin."""
        share = self.seconds / self.straight if self.straight else 1.0
        return round(MARGIN * share * self.direct_cost)


def detours_of(exchange: Exchange, itemsize: int, torus: Torus) -> frozenset[str]:
    """Return the forms that may take less time than sending directly: routed where one order of
    axes leaves links idle, spread where more is sent than there is."""
    axes = range(len(torus.dims))
    orders = [(*axes[first:], *axes[:first]) for first in axes]
    loads: list[Floats] = [np.zeros(2 * len(axes) * torus.size) for _ in orders]
    sent = 0.0
    for part in flows(exchange, itemsize):
        sent += float(part.weight.sum())
        for order, load in zip(orders, loads, strict=True):
            load += torus.load(part.sender, part.receiver, part.weight[None], torus.size, order)[0]
    slow = torus.bandwidth / torus.bandwidths(torus.size)
    busiest, shared = (float((load * slow).max()) for load in (loads[0], np.mean(loads, axis=0)))
    there = itemsize * math.prod(dim.extent for dim in exchange.source.dims)
    found = {"routed": busiest > IDLE * shared, "spread": sent > 2 * there}
    return frozenset(name for name, may in found.items() if may)
