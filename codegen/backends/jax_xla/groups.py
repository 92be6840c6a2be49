"""Exchanges that equal one all-to-all within groups.

Devices form groups in which every device sends one box to every other member and keeps one; all
boxes have the same shape.
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
    """An all-to-all within groups of `members` devices, whose ranks are in `groups`.

    `cuts`: the number of different boxes that a device cuts out; `pieces`: the number of pieces
    that it concatenates, counting adjacent boxes of a shard as one; `wire`: as in Rounds.
    """

    members: int
    cuts: int
    pieces: int
    join: Join
    wire: tuple[int, int]
    groups: tuple[tuple[int, ...], ...]
    collectives: int = 1


def groups_of(exchange: Exchange, boxes: Boxes) -> Groups | None:
    """Return the all-to-all that performs an exchange, or None."""
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
    cuts = _cuts(boxes, devices)
    return Groups(members, *cuts, join, (wire, wire * devices), listed)


def _cuts(boxes: Boxes, devices: int) -> tuple[int, int]:
    """Return the number of different boxes, and the number of pieces.

    Boxes differ if they start at different places on some device. XLA cuts consecutive boxes as one
    piece if each starts where the previous one ends along the first dimension, at the same places
    on all devices.
    """
    order = np.lexsort((*boxes.write.T[::-1], boxes.receiver))
    groups = boxes.sender[order].reshape(devices, -1)
    place = (groups == np.arange(devices)[:, None]).argmax(axis=1)
    order = np.lexsort((place[boxes.receiver], boxes.sender))
    reads = boxes.read[order].reshape(devices, *groups.shape[1:], -1).swapaxes(0, 1)
    alike = (reads == reads[:, :1]).all(axis=(1, 2))
    ahead = [boxes.window[0], *[0] * (len(boxes.window) - 1)]
    follows = alike[1:] & alike[:-1] & (np.diff(reads, axis=0) == ahead).all(axis=(1, 2))
    return len(np.unique(reads, axis=0)), len(reads) - int(follows.sum())
