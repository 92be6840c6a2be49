"""The names of a topology's links, in link order."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import assert_never

from shardwright.codegen.hardware.topology import Hierarchical, Switch, Topology, Torus


def link_names(topology: Topology, devices: int) -> list[str]:
    """Return a name for each link: "0 → 1" between neighbours, "out of device 3" and "into device
    3" at a switch. `devices`: the largest device id plus one."""
    match topology:
        case Switch():
            return _ends("device", topology.size or devices)
        case Hierarchical():
            return [*_ends("device", topology.size), *_ends("host", topology.hosts)]
        case Torus():
            return list(_neighbours(topology))
        case _:
            assert_never(topology)


def _ends(what: str, count: int) -> list[str]:
    return [f"{way} {what} {number}" for way in ("out of", "into") for number in range(count)]


def _neighbours(torus: Torus) -> Iterator[str]:
    """Yield the links of each axis, upwards from every device and then downwards."""
    for axis, size in enumerate(torus.dims):
        stride = math.prod(torus.dims[:axis])
        for step in (1, -1):
            for device in range(torus.size):
                at = device // stride % size
                yield f"{device} → {device + ((at + step) % size - at) * stride}"
