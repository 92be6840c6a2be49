"""Boxes exchanged among groups of devices in plain JAX: by an all-to-all, or by a fetch of one box
and an all-gather.

Ranks are positions: both meshes have one device order.
"""

import functools
from collections import defaultdict

import jax.numpy as jnp
import numpy as np
from jax import lax

from .exchanges import common
from .ranks import at
from .xla_rounds import boxes_of, of_pairs


def fetches(senders, groups, source, target):
    """Return the exchange in which every rank fetches a box from `senders[rank]`, possibly itself,
    and gets the other boxes of its group, if any, from those ranks' fetches."""
    groups = groups or [(rank,) for rank in range(len(senders))]
    pairs = [(senders[mate], rank) for group in groups for rank in group for mate in group]
    return of_pairs(pairs, source, target)


@functools.cache
def _groups_of(moves):
    """Return the groups that exchange everything, in the order of boxes in the receiver's shard;
    the shape of boxes; and by rank the start of the box for member i (reads[i])."""
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
    """Return the windows of a target shard stacked along their first dimension."""
    me, (groups, window, reads) = lax.axis_index(axes), _groups_of(moves)
    boxes = jnp.concatenate([lax.dynamic_slice(x, at(table, me), window) for table in reads])
    return lax.all_to_all(boxes, axes, 0, 0, axis_index_groups=groups, tiled=True)


def fetched(x, source, target, senders, axes, window):
    """Return every rank's window of one shard: that of `senders[rank]`, possibly itself."""
    reads = np.zeros((len(senders), len(window)), np.int32)
    for receiver, sender in enumerate(senders):
        own = source.box(sender)
        reads[sender] = np.subtract(common(own, target.box(receiver))[::2], own[::2])
    return lax.dynamic_slice(x, at(reads, lax.axis_index(axes)), window)


def permuted(x, axes, senders):
    """Return for every rank the data of the rank in `senders`."""
    return lax.ppermute(x, axes, [(sender, rank) for rank, sender in enumerate(senders)])


def along(groups, grid, dim):
    """Return the groups of ranks whose boxes are consecutive along a dimension of their grid."""
    rows = np.moveaxis(np.reshape(groups, (-1, *grid)), dim + 1, -1)
    return rows.reshape(-1, grid[dim]).tolist()
