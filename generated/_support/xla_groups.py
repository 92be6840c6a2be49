"""Boxes exchanged among groups of devices in plain JAX: by an all-to-all, or by fetching one box
per device followed by an all-gather.

Ranks are positions: both meshes have one device order.
"""

import functools
from collections import defaultdict

import jax.numpy as jnp
import numpy as np
from jax import lax

from .boxes import common
from .ranks import at
from .xla_rounds import boxes_of, of_pairs


def fetches(senders, groups, source, target):
    """Return the exchange in which every rank fetches a box from `senders[rank]`, possibly itself,
    and then gets the boxes that the other ranks of its group have fetched."""
    groups = groups or [(rank,) for rank in range(len(senders))]
    pairs = [(senders[mate], rank) for group in groups for rank in group for mate in group]
    return of_pairs(pairs, source, target)


@functools.cache
def _groups_of(moves):
    """Return three values: the groups of ranks that exchange boxes, each in the order of boxes in a
    receiver's shard; the shape of boxes; and a table [i, rank] of the start, in a rank's shard, of
    the box for member i of its group."""
    boxes = boxes_of(moves)
    givers = defaultdict(list)
    for box in boxes:
        givers[box.receiver].append((*box.write, box.sender))
    groups = {taker: [sender for *_, sender in sorted(each)] for taker, each in givers.items()}
    window = tuple(map(max, zip(*(box.shape for box in boxes), strict=True)))
    reads = np.zeros((len(groups[0]), len(moves.ranks), len(window)), np.int32)
    for box in boxes:
        reads[groups[box.sender].index(box.receiver), box.sender] = box.read
    return sorted(set(map(tuple, groups.values()))), window, reads


def among_groups(x, moves, axes):
    """Exchange boxes within groups, and return the windows of the target shard, concatenated
    along their first dimension."""
    me, (groups, window, reads) = lax.axis_index(axes), _groups_of(moves)
    boxes = jnp.concatenate([lax.dynamic_slice(x, at(table, me), window) for table in reads])
    return lax.all_to_all(boxes, axes, 0, 0, axis_index_groups=groups, tiled=True)


def fetched(x, source, target, senders, axes, window):
    """Return the window that this rank sends: the box of its shard that its receiver fetches.
    `senders`: the rank that sends to each rank."""
    reads = np.zeros((len(senders), len(window)), np.int32)
    for receiver, sender in enumerate(senders):
        own = source.box(sender)
        reads[sender] = np.subtract(common(own, target.box(receiver))[::2], own[::2])
    return lax.dynamic_slice(x, at(reads, lax.axis_index(axes)), window)


def permuted(x, axes, senders):
    """Return the data of rank `senders[rank]` on every rank."""
    return lax.ppermute(x, axes, [(sender, rank) for rank, sender in enumerate(senders)])


def along(groups, grid, dim):
    """Return the groups of ranks whose boxes form a row along dimension `dim` of a grid; `grid`:
    the shape of each group's grid of boxes."""
    rows = np.moveaxis(np.reshape(groups, (-1, *grid)), dim + 1, -1)
    return rows.reshape(-1, grid[dim]).tolist()
