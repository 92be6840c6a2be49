"""Programs in plain JAX: `lax` collectives within `shard_map`."""

import functools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from .boxes import extents
from .jax_program import Program


class Terms(NamedTuple):
    """Dimension 0 of source or target stands for unreduced axes: sums to be made. `operator`: what
    makes one value of the terms of the source; `target_operator`: of those of the target;
    `transposed`: whether cotangents are moved, of which every term is the tensor."""

    operator: str = "sum"
    target_operator: str = "sum"
    transposed: bool = False


class XlaProgram(Program):
    """`exchange_of` makes the target shard of a source shard; `axes`: those over which devices are
    ranked; `short`: the dimensions along which it leaves padding that is not zero; `reduces`:
    whether it computes with the elements."""

    def __init__(self, exchange_of, axes, short=(), reduces=False, terms=None, moves=None):
        self._exchange_of, self._axes, self._short = exchange_of, axes, short
        self._reduces, self._terms, self.moves = reduces, terms, moves

    def as_bits(self, interpret):
        """Return whether elements are given as integers of their width."""
        del interpret
        return self.floating and not self._reduces

    def exchange(self, shard, order, interpret, collective_id):
        """Return the target shard, its padding zero."""
        del order, interpret, collective_id
        y = self._exchange_of(shard)
        if self._short:
            extent = at(self._extents, lax.axis_index(self._axes))
            for axis in self._short:
                along = lax.broadcasted_iota(jnp.int32, y.shape, axis)
                y = jnp.where(along < extent[axis], y, jnp.zeros((), y.dtype))
        return y if self.host.target.local else y.reshape(())  # a scalar may move as a vector

    @functools.cached_property
    def _extents(self):
        """The exact shape of the target shard of every rank."""
        target, ranks = self.host.target, self.host.ranks
        if tuple(target.ids) == tuple(self.host.source.ids):
            ranks = list(target.ids)  # ranked as the mesh has them
        extent = np.zeros((len(ranks), len(target.local)), np.int32)
        for position, device_id in enumerate(target.ids):
            extent[ranks.index(device_id)] = extents(target.box(position))
        return extent

    def numbered(self, tensor):
        """Return a tensor of small numbers as `pad` takes it, and as `read` gives it."""
        host, dtype = self.host, self.host.dtype
        given = (self._terms_of(tensor) if host.source.terms else tensor).astype(dtype)
        tensor = tensor.astype(dtype)
        if host.target.terms and self._terms.transposed:
            return given, np.stack([tensor] * host.target.padded[0])
        return given, tensor

    def _terms_of(self, tensor):
        """Return terms of a tensor of which its operator alone makes the tensor."""
        count, operator = self.host.source.padded[0], self._terms.operator
        if self._terms.transposed:
            return np.stack([tensor] * count)
        # One of an element's terms has the element, the others less, more, or 1 and -1 in turn.
        turn = (np.arange(count).reshape(-1, *[1] * tensor.ndim) - tensor) % count
        others = {"min": tensor + 1, "max": np.maximum(tensor - 1, 0)}
        if operator in others:
            return np.where(turn == 0, tensor, others[operator])
        own = tensor - (count - 1) % 2
        return np.where(turn == 0, own, np.where(turn % 2, 1, -1))

    def read(self, result):
        """Return the tensor that an unpadded result stands for."""
        if not self.host.target.terms or self._terms.transposed:
            return result
        return getattr(np.asarray(result, np.float32), self._terms.target_operator)(axis=0)


def at(table, me):
    """Return the row of a rank in a table; the row itself where all are the same."""
    if (table == table[0]).all():
        return table[0]
    return lax.dynamic_index_in_dim(jnp.asarray(table), me, keepdims=False)
