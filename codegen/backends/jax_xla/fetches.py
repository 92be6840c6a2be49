"""Exchanges in which every device fetches one box and gathers the others from devices that also
need them.

Devices that need the same target shard form groups with as many devices as the shard has boxes.
Each device fetches one box from a device that has it, by one permutation of all devices. The group
then gathers the rest, one dimension after another. A device that has one of the boxes keeps it, so
no device receives more than in the exchange. Only the senders differ from those of the exchange:
every device sends a single box, to the device that fetches it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shardwright.codegen.backends.jax_xla.boxes import (
    MOST_LISTED,
    MOST_PADDING_AT_ONCE,
    Boxes,
    ranks_by_shard,
)
from shardwright.codegen.backends.jax_xla.joins import Join
from shardwright.codegen.ops.collective_text import collective_call
from shardwright.ir.algebra.index import Integers
from shardwright.ir.exchange import Exchange


@dataclass(frozen=True)
class Fetches:
    """A permutation, and an all-gather for every dimension along which boxes are joined.

    `senders`: the device from which each device fetches its box, possibly itself; `groups`: the
    devices that gather each other's boxes, in the order of the boxes in their shard; `is_whole`:
    whether a box is a whole source shard; `wire`: as in Rounds.
    """

    senders: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    is_whole: bool
    join: Join
    wire: tuple[int, int]

    @property
    def members(self) -> int:
        return len(self.groups[0])

    @property
    def permutes(self) -> bool:
        return self.senders != tuple(range(len(self.senders)))

    @property
    def dimensions(self) -> tuple[int, ...]:
        """The dimensions along which boxes are gathered, in order of execution.

        The dimension along which boxes are contiguous in memory comes last: the last all-gather
        moves the most, and along this dimension it needs no transpose.
        """
        counts = reversed(list(enumerate(self.join.grid)))
        return tuple(dim for dim, count in counts if count > 1)

    @property
    def collectives(self) -> int:
        return self.permutes + len(self.dimensions)

    @property
    def libraries(self) -> frozenset[str]:
        return frozenset(("lax",) if self.dimensions else ())

    @property
    def gathers(self) -> tuple[str, ...]:
        """The statements that compute the shard `y` from the device's own box `y`."""
        lines, shape = [], list(self.join.window)
        for dim in self.dimensions:
            among = "GROUPS" if len(self.dimensions) == 1 else f"along(GROUPS, GRID, {dim})"
            is_outermost = math.prod(shape[:dim]) == 1
            call, given = collective_call("all_gather", "y", "AXES", dim, tiled=is_outermost)
            lines.append(f"y = {call}({', '.join(given)}, axis_index_groups={among})")
            shape[dim] *= self.join.grid[dim]
            if not is_outermost:
                lines.append(f"y = y.reshape({', '.join(map(str, shape))})")
        return (*lines, *self.join.cut)


def fetches_of(exchange: Exchange, boxes: Boxes) -> Fetches | None:
    """Return the permutation and all-gathers that perform an exchange, or None. `boxes`: the boxes
    of whole tiles, each from any device that has it."""
    devices = exchange.ranks.size
    if not exchange.same_order or boxes.local.all() or devices > MOST_LISTED:
        return None
    grid = boxes.grid(devices, MOST_PADDING_AT_ONCE)
    if grid is None or exchange.target.replicas % math.prod(grid):
        return None
    table = _by_cell(boxes, grid)
    groups = _groups(exchange, table)
    senders = _senders(exchange, table, groups)
    if senders is None:
        return None
    away, others = senders != np.arange(devices), table.shape[1] - 1
    size = math.prod(boxes.window)
    wire = size * (int(away.max()) + others), size * (int(away.sum()) + others * devices)
    join = Join(grid, boxes.window, exchange.target.local_shape)
    whole = boxes.window == exchange.source.local_shape
    return Fetches(tuple(senders.tolist()), tuple(map(tuple, groups.tolist())), whole, join, wire)


def _by_cell(boxes: Boxes, grid: tuple[int, ...]) -> Integers:
    """Return an array [devices, boxes] of senders: for every box of every device's target shard,
    the device that sends it, or the receiver itself if it has the box."""
    cells = np.ravel_multi_index(tuple((boxes.write // boxes.window).T), grid)
    table = np.empty((boxes.receiver.size // math.prod(grid), math.prod(grid)), dtype=np.int64)
    table[boxes.receiver, cells] = boxes.sender
    return table


def _groups(exchange: Exchange, table: Integers) -> Integers:
    """Return groups [n, members] of devices with one target shard. If possible, a device is placed
    at a box that it has, so devices with the same box are in different groups."""
    found = []
    for wanting in ranks_by_shard(exchange, exchange.target):
        group = np.full((wanting.size // table.shape[1], table.shape[1]), -1, dtype=np.int64)
        others = []
        for device in wanting.tolist():
            free = (table[device] == device) & (group < 0)
            if free.any():
                group[np.unravel_index(free.argmax(), group.shape)] = device
            else:
                others.append(device)
        group[group < 0] = others
        found.append(group)
    return np.concatenate(found)


def _senders(exchange: Exchange, table: Integers, groups: Integers) -> Integers | None:
    """Return the device from which each device fetches its box, itself if possible. All senders are
    distinct. Return None unless each source shard has exactly one idle device for each device that
    fetches from it."""
    senders = np.empty(groups.size, dtype=np.int64)
    senders[groups] = table[groups, np.arange(groups.shape[1])]
    kept = senders == np.arange(senders.size)
    for holders in ranks_by_shard(exchange, exchange.source):
        idle, fetching = holders[~kept[holders]], np.flatnonzero(np.isin(senders, holders) & ~kept)
        if idle.size != fetching.size:
            return None
        senders[fetching] = idle
    return senders
