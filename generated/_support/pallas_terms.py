"""Reductions in a program with Pallas kernels: the kernels move all terms of a target shard to
its device, as a dimension of the tensor, and XLA reduces them in the order of their numbers."""

import functools
import operator
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from .pallas_program import PallasProgram

# Up to this many terms are reduced in one expression; more terms, in a loop.
UNROLLED = 8


class Stacked(NamedTuple):
    """One side as kernels see it, with dimensions for terms. `ids`: device ids by position;
    `box`: a function from a position to its box, whose first ranges number terms; `local`: the
    shape of the largest shard; `axes`: the axes of the mesh; `numbered`: the number of leading
    dimensions that number terms; `new`: how many of them, counted from the last, have a value
    only for their first term."""

    ids: Sequence[int]
    box: Callable
    local: tuple[int, ...]
    axes: tuple[tuple[str, int], ...]
    numbered: int = 0
    new: int = 0

    @property
    def hidden(self):
        """Return the extents of the dimensions that number terms."""
        return self.local[: self.numbered]


class Carried(NamedTuple):
    """The host of the program with the kernels: the part of `OneOrder` that the program uses.
    `paddings`: those of the reshard, if kernels write its target shards."""

    shape: tuple[int, ...]
    dtype: object
    source: Stacked
    target: Stacked
    paddings: Sequence | None = None


class ReducedTerms(PallasProgram):
    """A program on arrays with a dimension of terms. `carrier`: the program with the kernels,
    between `source` and `target`, `Stacked`s; `terms`: the `Terms`; `reduces`: whether to reduce
    the kernels' result over its first dimension; `empty`: the value of missing terms."""

    def __init__(self, carrier, source, target, terms, reduces=False, empty=0):
        self.carrier, self._source, self._target = carrier, source, target
        self.terms, self._reduces, self._empty_value = terms, reduces, empty
        self.peers, self.order = carrier.peers, carrier.order
        self.collective_id, self.bits = carrier.collective_id, carrier.bits
        self.carriers = carrier.carriers

    def attach(self, host):
        """Bind to the host of a reshard."""
        super().attach(host)
        self.carrier.attach(Carried(host.shape, host.dtype, self._source, self._target))

    def fault(self):
        """Return a message about the first device whose wait does not match the transfers on its
        semaphores, or ""."""
        return self.carrier.fault()

    def carried(self, shard, call):
        """Return the target shard with zero padding."""
        x = shard.reshape(self._source.local)
        y = self.carrier.carried(x, call)
        if self._reduces:
            floating = jnp.issubdtype(self.host.dtype, jnp.floating)
            # Floats may have moved as integers of their width, which must not be reduced.
            values = lax.bitcast_convert_type(y, self.host.dtype) if floating else y
            y = reduced(values, self.terms.operator)
            y = lax.bitcast_convert_type(y, shard.dtype) if floating else y
        y = y.reshape(self.host.target.local)
        new = self._target.new
        _, receiver = self.carrier.peers.here(call.order) if new or self.host.paddings else (0, 0)
        if new:
            y = jnp.where(self._is_empty(receiver), self._empty(shard.dtype), y)
        if not self.host.paddings:
            return y
        from .jax_zeros import zero_ends  # only if emitted with padding

        return zero_ends(y, self.host, receiver)

    def _is_empty(self, receiver):
        """Return whether the target shard at a position is a term without a value."""
        last = 2 * self._target.numbered
        firsts = self._target.box(receiver)[last - 2 * self._target.new : last : 2]
        return functools.reduce(operator.or_, (first > 0 for first in firsts))

    def _empty(self, dtype):
        """Return the value of a missing term as an element of `dtype`, the dtype of shards."""
        return np.asarray(self._empty_value, self.host.dtype).view(dtype)


def reduced(terms, operator):
    """Reduce an array [terms, ...] over its first dimension by an operator, in order. Floats
    narrower than 32 bits are reduced as float32 and rounded once."""
    narrow = jnp.issubdtype(terms.dtype, jnp.floating) and terms.dtype.itemsize < 4
    wide = jnp.float32 if narrow else terms.dtype
    combined = {"sum": jnp.add, "max": jnp.maximum, "min": jnp.minimum}[operator]

    def one(number, total):
        term = lax.dynamic_index_in_dim(terms, number, keepdims=False)
        return combined(total, term.astype(wide))

    total, count = terms[0].astype(wide), len(terms)
    if count > UNROLLED:
        total = lax.fori_loop(1, count, one, total)
    else:
        for number in range(1, count):
            total = one(number, total)
    return total.astype(terms.dtype)
