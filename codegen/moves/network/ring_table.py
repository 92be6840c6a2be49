"""The cost of collectives of a whole array along the axes of a torus, by a table and by the model.

The table is from "How to Scale Your Model". For an array of B bytes, and axes with a bandwidth of W
in both directions together, it gives these seconds:

    all_gather       B / (W k)       along k axes
    reduce_scatter   the same
    all_reduce       twice
    all_to_all       B / (4 W)       along one axis

The table is right for large arrays on rings of many devices. In the model, a gather over N devices
takes (N - 1)/N of that time, and on a chain twice that. For small arrays latency dominates: a
collective takes as long as for zero bytes, and longer on more devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from shardwright.codegen.hardware.torus import Torus
from shardwright.codegen.moves.basis.digits import Pair, parts_of
from shardwright.codegen.moves.network.collectives import Prices
from shardwright.codegen.moves.network.links import Network

# The maximum number of devices of a torus, because routing on a larger torus takes a long time.
MOST_DEVICES = 1024


@dataclass(frozen=True)
class RingCost:
    """The time of a collective along some axes, in seconds."""

    op: str
    axes: int  # the number of axes
    table: float  # seconds according to the table
    model: float  # seconds according to the model
    latency: float  # seconds according to the model for zero bytes

    @property
    def bound_by(self) -> str:
        """The factor that limits the collective: "latency" or "bandwidth"."""
        return "latency" if 2 * self.latency > self.model else "bandwidth"


def ring_costs(topology: Torus, nbytes: float) -> tuple[RingCost, ...]:
    """Return the costs of collectives of an array of `nbytes` bytes, along the first axis with
    several devices and along all such axes. Return an empty tuple for a torus of more than
    MOST_DEVICES devices."""
    if topology.size > MOST_DEVICES:
        return ()
    prices = Prices(Network(topology, topology.size), np.arange(topology.size, dtype=np.int64))
    axes = [axis for axis, size in enumerate(topology.dims) if size > 1]
    counts = sorted({1, len(axes)}) if axes else []
    return tuple(
        cost for count in counts for cost in _along(topology, prices, axes[:count], nbytes)
    )


def _along(topology: Torus, prices: Prices, axes: list[int], nbytes: float) -> Iterator[RingCost]:
    digits = tuple(_digit(topology, axis) for axis in axes)
    width = 2 * float(topology.bandwidths(topology.size).min())
    gathered, part = nbytes / (width * len(axes)), 1 / parts_of(digits)
    rows: list[tuple[str, float, Callable[[float], float]]] = [
        ("all_gather", gathered, lambda size: prices.all_gather(digits, size * part)),
        ("reduce_scatter", gathered, lambda size: prices.reduce_scatter(digits, size)),
        ("all_reduce", 2 * gathered, lambda size: prices.all_reduce(digits, size)),
    ]
    if len(axes) == 1:
        rows.append(
            ("all_to_all", gathered / 4, lambda size: prices.all_to_all(digits, size * part))
        )
    for op, table, seconds in rows:
        yield RingCost(op, len(axes), table, seconds(nbytes), seconds(0.0))


def _digit(topology: Torus, axis: int) -> Pair:
    """Return the digit (stride, size) of a device id that is its coordinate along an axis."""
    places = topology.coordinates(np.arange(topology.size, dtype=np.int64))
    apart = [k for k in range(places.shape[1]) if k != axis]
    alone = (places[:, axis] == 1) & (places[:, apart] == 0).all(axis=1)
    return int(np.flatnonzero(alone)[0]), topology.dims[axis]
