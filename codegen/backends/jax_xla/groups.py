"""Exchanges that are one all-to-all among groups.

Devices fall into groups in which every device sends a box of one shape to every other and keeps
one of that shape itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shardwright.codegen.backends.jax_xla.boxes import MOST_PADDING_AT_ONCE, Boxes
from shardwright.codegen.backends.jax_xla.joins import Join
from shardwright.ir.exchange import Exchange


@dataclass(frozen=True)
class Groups:
    """An all-to-all among groups of `members`, ranks as `groups` has them; `wire` as in Rounds."""

    members: int
    join: Join
    wire: tuple[int, int]
    groups: tuple[tuple[int, ...], ...]
    collectives: int = 1


def groups_of(exchange: Exchange, boxes: Boxes) -> Groups | None:
    """Return the all-to-all that an exchange is, None if it is not one."""
    devices = exchange.ranks.size
    if not exchange.same_order or boxes.local.all():
        return None
    grid = boxes.grid(devices, MOST_PADDING_AT_ONCE)
    if grid is None:
        return None
    members = math.prod(grid)
    order = np.lexsort((boxes.sender, boxes.receiver))
    senders = boxes.sender[order].reshape(devices, members)
    groups = np.unique(senders, axis=0)
    if not np.array_equal(np.sort(groups, axis=None), np.arange(devices)):
        return None
    if not (senders == np.arange(devices)[:, None]).any(axis=1).all():
        return None
    wire = math.prod(boxes.window) * (members - 1)
    join = Join(grid, boxes.window, exchange.target.local_shape)
    listed = tuple(map(tuple, groups.tolist()))
    return Groups(members, join, (wire, wire * devices), listed)
