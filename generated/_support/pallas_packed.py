"""Tiles in slots: XLA packs each into one, and puts target shards together from them."""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl

from .pallas_index import multiple
from .pallas_program import PallasProgram


class Slot(NamedTuple):
    """How a slot holds a box. `shape`: its own; `held`: the extents of the box; `dense`: whether
    rows lie one after another in granules of 512 bytes; `order`: that of the dimensions in the
    slot, None for the tensor's; `sized`: (dimension, what divides sizes) of which moves say how
    much is sent."""

    shape: tuple[int, ...]
    held: tuple[int, ...]
    dense: bool = False
    order: tuple[int, ...] | None = None
    sized: tuple[tuple[int, int], ...] = ()

    def part(self, moves, first):
        """Return the part of a slot that a move takes, whose numbers begin at `first`."""
        sizes = {axis: (2 + k, unit) for k, (axis, unit) in enumerate(self.sized)}
        part: list[object] = [slice(None)] * (1 + max(sizes, default=-1))
        for axis, (column, unit) in sizes.items():
            size = moves[first + column]
            part[axis] = pl.ds(0, size if unit == 1 else multiple(size, unit))
        return tuple(part)

    def packed(self, values):
        """Return a slot that holds values."""
        if self.dense:
            values = values.reshape(-1)
            return jnp.pad(values, (0, math.prod(self.shape) - values.size)).reshape(self.shape)
        return values if self.order is None else lax.transpose(values, self.order)

    def unpacked(self, slot):
        """Return what a slot holds."""
        if self.dense:
            return slot.reshape(-1)[: math.prod(self.held)].reshape(self.held)
        order = self.order or tuple(range(len(self.held)))
        slot = trimmed(slot, tuple(self.held[axis] for axis in order))
        inverse = tuple(order.index(axis) for axis in range(len(order)))
        return slot if self.order is None else lax.transpose(slot, inverse)


class Packed(PallasProgram):
    """What forms with slots have in common. `slot`: how one holds what travels; `window`: what a
    tile fits; `source_reach`, `target_reach`: how far windows reach into the source shard, and into
    the target shard, where that is beyond their ends."""

    packed = True

    def __init__(self, peers, slot, window, source_reach=None, target_reach=None, **settings):
        super().__init__(peers, tuple(range(len(window))), **settings)
        self.slot, self.window = slot, window
        self._source_reach, self._target_reach = source_reach, target_reach

    def padded(self, x):
        """Return a source shard as far as windows reach."""
        if self._source_reach is None:
            return x
        pairs = zip(x.shape, self._source_reach, strict=True)
        return jnp.pad(x, [(0, reach - size) for size, reach in pairs])

    def window_at(self, x, box, within):
        """Return the window that begins at a tensor box, of a shard that covers another."""
        return lax.dynamic_slice(x, starts(box, within), self.window)

    def filled(self, slots, count, tile, dtype):
        """Return so many slots, `count` of them packed: tile(number) gives a slot and a window."""

        def one(number, slots):
            place, window = tile(number)
            return lax.dynamic_update_index_in_dim(
                slots, self.slot.packed(window), jnp.int32(place), 0
            )

        slots = jnp.zeros((slots, *self.slot.shape), dtype)
        return lax.fori_loop(np.int32(0), jnp.int32(count), one, slots)

    def put_together(self, me, receiver, window, dtype):
        """Return the target shard at a position, of the windows window(number, piece).

        Tiles come in row-major order and a window reaches beyond its tile only to higher indices,
        so that what a window writes too much is written over by the tiles that follow.
        """
        within = self.host.target.box(receiver)

        def one(number, y):
            piece = self.peers.incoming(receiver, me, number)
            return lax.dynamic_update_slice(y, window(number, piece), starts(piece.box, within))

        y = jnp.zeros(self._target_reach or self.target_shape, dtype)
        count = jnp.int32(self.peers.incoming_count(receiver))
        return trimmed(lax.fori_loop(np.int32(0), count, one, y), self.target_shape)


def starts(box, within):
    """Return where a tensor box starts in the shard that covers the range `within`."""
    pairs = zip(box[::2], within[::2], strict=True)
    return [jnp.int32(low - start) for low, start in pairs]


def trimmed(y, shape):
    """Return the start of an array."""
    return y if y.shape == tuple(shape) else lax.slice(y, (0,) * y.ndim, shape)
