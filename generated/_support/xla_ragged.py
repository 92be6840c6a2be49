"""Boxes exchanged as rows in plain JAX by `lax.ragged_all_to_all`."""

import functools

import jax.numpy as jnp
import numpy as np
from jax import lax

from .ranks import at
from .xla_rounds import boxes_of


@functools.cache
def _ragged_tables(moves, axis, unit):
    """Return three tables [sender, receiver]: the start of a box's rows in the source shard, the
    number of its rows, and their start in the target shard."""
    tables = np.zeros((3, len(moves.ranks), len(moves.ranks)), np.int32)
    for box in boxes_of(moves):
        tables[:, box.sender, box.receiver] = box.read[axis], box.shape[axis], box.write[axis]
    return tables // unit


def ragged(x, moves, axes, shape, axis, unit=1):
    """Return the rows of the target shard, of shape `shape`, given the rows of the source shard. A
    row spans `unit` indices of dimension `axis` of the tensor."""
    tables = _ragged_tables(moves, axis, unit)

    def at_once(x):
        me = lax.axis_index(axes)
        reads, sizes, writes = tables
        sent, taken = [at(table, me) for table in (reads, sizes, writes)], at(sizes.T, me)
        y = jnp.zeros(shape, x.dtype)
        return lax.ragged_all_to_all(x, y, *sent, taken, axis_name=axes)

    def by_distance(x):
        me, ranks = lax.axis_index(axes), np.arange(len(moves.ranks))
        y = jnp.zeros(shape, x.dtype)
        for distance in ranks.tolist():
            takers = (ranks + distance) % len(ranks)
            reads, sizes, writes = tables[:, ranks, takers]
            rows = np.arange(sizes.max())
            if not rows.size:
                continue
            box = jnp.take(x, at(reads, me) + rows, axis=0, mode="clip")
            if distance:
                pairs = list(zip(ranks.tolist(), takers.tolist(), strict=True))
                box = lax.ppermute(box, axes, pairs)
            # The size and place of an arriving box come from its sender, `distance`
            # ranks before.
            size, write = (at(np.roll(table, distance), me) for table in (sizes, writes))
            y = y.at[jnp.where(rows < size, write + rows, len(y))].set(box, mode="drop")
        return y

    # XLA on CPU has no ragged all-to-all.
    return lax.platform_dependent(x, cpu=by_distance, default=at_once)
