"""Exchanges in which every device fetches one box, and gets the others from devices that need them
too.

Devices that need the same target shard, made of as many boxes as devices (or in groups of that
size), each fetch one box from a holder: one permutation of all devices. The rest of a shard is
gathered within the group, one dimension after another. A device that holds one of the boxes keeps
it, so no device receives more than in the exchange; only the senders differ, as every device sends
one box to its fetcher.
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
from shardwright.ir.algebra.index import Integers
from shardwright.ir.exchange import Exchange


@dataclass(frozen=True)
class Fetches:
    """A permutation, and an all-gather for every dimension along which boxes are joined.

    `senders`: for each device the holder of the box it fetches, possibly itself; `groups`: the
    devices that gather each other's boxes, by place in their shard; `is_whole`: whether a box is a
    whole source
    shard. `wire` as in Rounds.
    """

    senders: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    is_whole: bool
    join: Join
    wire: tuple[int, int]

    @property
    def members(self) -> int:
        """The devices of a group."""
        return len(self.groups[0])

    @property
    def permutes(self) -> bool:
        """Return whether any box is fetched from another device."""
        return self.senders != tuple(range(len(self.senders)))

    @property
    def dimensions(self) -> tuple[int, ...]:
        """The dimensions along which boxes are gathered, in this order. The one along which boxes
        are contiguous in memory is last: the last step gathers the most, and needs no transpose
        there."""
        counts = reversed(list(enumerate(self.join.grid)))
        return tuple(dim for dim, count in counts if count > 1)

    @property
    def collectives(self) -> int:
        """The number of collectives."""
        return self.permutes + len(self.dimensions)

    @property
    def libraries(self) -> frozenset[str]:
        """The names that the statements use."""
        return frozenset(("lax",) if self.dimensions else ())

    @property
    def gathers(self) -> tuple[str, ...]:
        """Statements that compute the shard `y` from the own box `y`."""
        lines, shape = [], list(self.join.window)
        for dim in self.dimensions:
            among = "GROUPS" if len(self.dimensions) == 1 else f"along(GROUPS, GRID, {dim})"
            is_outermost = math.prod(shape[:dim]) == 1
            how = f"axis={dim}, " + "tiled=True, " * is_outermost + f"axis_index_groups={among}"
            lines.append(f"y = lax.all_gather(y, AXES, {how})")
            shape[dim] *= self.join.grid[dim]
            if not is_outermost:
                lines.append(f"y = y.reshape({', '.join(map(str, shape))})")
        return (*lines, *self.join.cut)


def fetches_of(exchange: Exchange, boxes: Boxes) -> Fetches | None:
    """Return the permutation and all-gather equal to an exchange, or None; `boxes`: whole tiles,
    from any holders."""
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
    """Return a holder of every box of every device, itself if possible: [devices, boxes]."""
    cells = np.ravel_multi_index(tuple((boxes.write // boxes.window).T), grid)
    table = np.empty((boxes.receiver.size // math.prod(grid), math.prod(grid)), dtype=np.int64)
    table[boxes.receiver, cells] = boxes.sender
    return table


def _groups(exchange: Exchange, table: Integers) -> Integers:
    """Return groups [n, members] of devices with one target shard, each device at a box that it
    holds if possible: holders of the same box are in different groups."""
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
    """Return, for each device, the holder of the box it fetches, itself if possible, all distinct.
    None if a shard has fewer holders than fetching devices."""
    senders = np.empty(groups.size, dtype=np.int64)
    senders[groups] = table[groups, np.arange(groups.shape[1])]
    kept = senders == np.arange(senders.size)
    for holders in ranks_by_shard(exchange, exchange.source):
        idle, fetching = holders[~kept[holders]], np.flatnonzero(np.isin(senders, holders) & ~kept)
        if idle.size != fetching.size:
            return None
        senders[fetching] = idle
    return senders
