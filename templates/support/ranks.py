"""Ranks: the numbers that JAX programs use for the devices of both sides of an exchange."""

import jax.numpy as jnp
from jax import lax


def end_ranks(exchange, by_id=False):
    """Return the ranks of the source positions and of the target positions: the positions
    themselves if both sides list the same devices in the same order and `by_id` is false, else
    indices into the sorted ids."""
    alike = tuple(exchange.source.ids) == tuple(exchange.target.ids)
    if not by_id and alike and len(exchange.ranks) == len(exchange.source.ids):
        return range(len(exchange.ranks)), range(len(exchange.ranks))
    rank = {device_id: number for number, device_id in enumerate(exchange.ranks)}
    return tuple([rank[each] for each in side.ids] for side in (exchange.source, exchange.target))


def at(table, me):
    """Return the row of rank `me` in a table. If all rows are equal, return it as a constant."""
    if (table == table[0]).all():
        return table[0]
    return lax.dynamic_index_in_dim(jnp.asarray(table), me, keepdims=False)
