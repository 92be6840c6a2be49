"""Boxes that devices exchange among groups in plain JAX: in an all-to-all, or each fetches one and
gathers those of the others.

Ranks are positions: both meshes have one order.
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
    """Return the exchange in which every rank fetches a box from `senders[rank]`, maybe itself, and
    has the others of its group, if there are any, by what they fetch."""
    groups = groups or [(rank,) for rank in range(len(senders))]
    pairs = [(senders[mate], rank) for group in groups for rank in group for mate in group]
    return of_pairs(pairs, source, target)


@functools.cache
def _groups_of(moves):
    """Return the groups in which everything moves, in the order in which boxes lie in the shard of
    their receiver; the shape of boxes; and by rank where that for the i-th member starts
    (reads[i])."""
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
    """Return the windows of a target shard one after the other along their first dimension."""
    me, (groups, window, reads) = lax.axis_index(axes), _groups_of(moves)
    boxes = jnp.concatenate([lax.dynamic_slice(x, at(table, me), window) for table in reads])
    return lax.all_to_all(boxes, axes, 0, 0, axis_index_groups=groups, tiled=True)


def fetched(x, source, target, senders, axes, window):
    """Return the window that every rank has of one shard: that of `senders[rank]`, maybe itself."""
    reads = np.zeros((len(senders), len(window)), np.int32)
    for receiver, sender in enumerate(senders):
        own = source.box(sender)
        reads[sender] = np.subtract(common(own, target.box(receiver))[::2], own[::2])
    return lax.dynamic_slice(x, at(reads, lax.axis_index(axes)), window)


def permuted(x, axes, senders):
    """Return what every rank has of the one that `senders` lists for it."""
    return lax.ppermute(x, axes, [(sender, rank) for rank, sender in enumerate(senders)])


def along(groups, grid, dim):
    """Return the groups of ranks whose boxes follow one another along a dimension of their grid."""
    rows = np.moveaxis(np.reshape(groups, (-1, *grid)), dim + 1, -1)
    return rows.reshape(-1, grid[dim]).tolist()
