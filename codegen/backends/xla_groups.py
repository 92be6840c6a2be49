"""Exchanges that are one collective among groups: an all-to-all or an all-gather.

Devices fall into groups in which every device sends a box of one shape to every other and keeps
one of that shape itself. Where that box is its whole shard, the exchange is an all-gather.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from shardwright.codegen.backends.xla_rounds import MOST_PADDING, Boxes
from shardwright.ir.exchange import Exchange


@dataclass(frozen=True)
class Groups:
    """A collective among groups of `members`; `wire` as in Rounds."""

    op: Literal["all_to_all", "all_gather"]
    members: int
    wire: tuple[int, int]


def groups_of(exchange: Exchange, boxes: Boxes) -> Groups | None:
    """The collective that an exchange is, None where it is not one."""
    devices = exchange.ranks.size
    if not exchange.same_order or boxes.local.all():
        return None
    if (boxes.full != boxes.full[0]).any() or boxes.padding() >= MOST_PADDING:
        return None
    members = boxes.sender.size // devices
    if (np.bincount(boxes.receiver, minlength=devices) != members).any():
        return None
    order = np.lexsort((boxes.sender, boxes.receiver))
    senders = boxes.sender[order].reshape(devices, members)
    groups = np.unique(senders, axis=0)
    if not np.array_equal(np.sort(groups, axis=None), np.arange(devices)):
        return None
    if not (senders == np.arange(devices)[:, None]).any(axis=1).all():
        return None
    window = boxes.shape.max(axis=0)
    whole = window.tolist() == [dim.size for dim in exchange.source.dims]
    wire = int(window.prod()) * (members - 1)
    return Groups("all_gather" if whole else "all_to_all", members, (wire, wire * devices))
