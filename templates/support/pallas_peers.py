"""Who sends what to whom within a kernel: each end finds its pieces alone, by index functions.

A position numbers a device in a mesh, a rank in the sorted union of the ids of both meshes, which
are one where both list the same devices in the same order. Functions that take `order` look ranks
up in that table, where ids have no closed form. Index functions compute with integers and with
traced values.
"""

import functools
import math
import operator
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from .boxes import Cut, Exchange, ranges

LOGICAL = pl.DeviceIdType.LOGICAL


def numpy_of(*values):
    """Return jax.numpy where a value is traced, else numpy, for which nothing is compiled."""
    return jnp if any(isinstance(value, jax.core.Tracer) for value in values) else np


def minimum(a, b):
    """Return the smaller of two integers."""
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else numpy_of(a, b).minimum(a, b)


def maximum(a, b):
    """Return the larger of two integers."""
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else numpy_of(a, b).maximum(a, b)


def div(a, b):
    """Return the quotient of integers that are not negative: one operation of a kernel, where `//`
    is nine to floor those that are."""
    if isinstance(b, int) and b == 1:
        return a
    return lax.div(a, operand(b)) if isinstance(a, jax.core.Tracer) else a // b


def rem(a, b):
    """Return the remainder of integers that are not negative."""
    if isinstance(b, int) and b == 1:
        return 0
    return lax.rem(a, operand(b)) if isinstance(a, jax.core.Tracer) else a % b


def operand(b):
    """Return an integer in 32 bits, whichever JAX would make of it."""
    return np.int32(b) if isinstance(b, int) else b


def negated(condition):
    """Return whether a condition does not hold."""
    return numpy_of(condition).logical_not(condition)


def is_full(ranges):
    """Return whether a box of ranges (low, high) has any element."""
    return functools.reduce(operator.and_, (low < high for low, high in ranges))


def same(shard, other):
    """Return whether two shards are one, by their numbers along each dimension."""
    pairs = zip(shard, other, strict=True)
    return functools.reduce(operator.and_, (a == b for a, b in pairs))


def multiple(index, divisor):
    """Return an index, known to the compiler to be a multiple of the divisor."""
    return index if isinstance(index, int) else pl.multiple_of(index, divisor)


def meet_all(coming, tells, going, hears):
    """Tell all senders that this device has entered the kernel, and hear it of all receivers: they
    may be written to from then on. tells(number), below `coming`: whether a sender is told, and its
    rank; hears(number), below `going`: whether a receiver is heard.

    A device tells again only after all data of the call before have arrived, so that a sender never
    holds two signals of one receiver.
    """
    barrier = pltpu.get_barrier_semaphore()

    def tell(number):
        told, device = tells(number)

        @pl.when(told)
        def signal():
            pl.semaphore_signal(barrier, 1, device_id=device, device_id_type=LOGICAL)

    def add(number, expected):
        return expected + jnp.int32(hears(number))

    each(coming, tell)
    expected = lax.fori_loop(np.int32(0), jnp.int32(going), add, np.int32(0))
    pl.when(expected > 0)(lambda: pl.semaphore_wait(barrier, expected))


def each(count, visit, first=0):
    """Call visit(number) for every number below a count."""

    def one(number, carry):
        visit(number)
        return carry

    lax.fori_loop(np.int32(first), jnp.int32(count), one, np.int32(0))


class Forms(NamedTuple):
    """The index functions of a module. `source_shard`, `target_shard`: the shard at a position, by
    its number along each dimension; `tile`: the box of a source and a target shard; `senders`,
    `receivers`: (first, count) per dimension of the shards that meet one at a position;
    `target_position`: of a replica of a target shard; `holder`: who sends a tile, or a piece of
    it, to a receiver."""

    source_shard: Callable
    target_shard: Callable
    tile: Callable
    senders: Callable
    receivers: Callable
    target_position: Callable
    holder: Callable


class Pieces(NamedTuple):
    """Into how many pieces tiles are cut, along which dimension, at multiples of `unit`; `range_of`
    gives that of a piece within the width of a tile."""

    pieces: int
    dim: int
    unit: int
    range_of: Callable


class PeerPiece(NamedTuple):
    """A piece as one end sees it: whether it moves, the position of the other end, the shard there,
    the number of the piece, its box."""

    moves: object
    peer: object
    shard: tuple
    piece: object
    box: tuple


class Peers:
    """Everything that moves. `source`, `target`: `Sharded`s; `replicas`: of each target shard;
    `kept`: whether any device holds a part of its target shard; `sends`: whether any lacks one."""

    def __init__(self, source, target, forms, replicas=1, pieces=None, *, kept=True, sends=True):
        self.source, self.target, self.forms = source, target, forms
        self.replicas, self.pieces, self.kept, self.sends = replicas, pieces, kept, sends
        self.count = pieces.pieces if pieces else 1
        self.devices = sorted({*source.ids, *target.ids})
        self.one_order = tuple(source.ids) == tuple(target.ids)
        names = tuple(name for name, _ in source.axes)
        self.axes = (names if len(names) > 1 else names[0]) if self.one_order else "device"
        self.offsets = self._offsets()
        self.order = None if self.offsets is not None else self._order()

    def _offsets(self):
        """Return by how much the tables of `_order` are more than what they are looked up for; None
        where ids are not consecutive."""
        sides = self.source.ids, self.target.ids
        if self.one_order:
            return 0, 0, 0, 0
        if not all(isinstance(ids, range) for ids in sides):
            return None
        source, target = (self.devices.index(ids.start) for ids in sides)
        return source, target, -source, -target

    def _order(self):
        """Return ranks by source position, by target position; positions in the source mesh by
        rank, and in the target mesh, -1 for none."""
        rank = {device_id: number for number, device_id in enumerate(self.devices)}
        sides = self.source.ids, self.target.ids
        ranks = [rank[device_id] for ids in sides for device_id in ids]
        places = [{device_id: k for k, device_id in enumerate(ids)} for ids in sides]
        return (*ranks, *(place.get(each, -1) for place in places for each in self.devices))

    def _looked_up(self, table, number, order):
        if order is None:
            return number + self.offsets[table]
        sizes = len(self.source.ids), len(self.target.ids), len(self.devices)
        return order[sum(sizes[:table]) + number]

    def source_rank(self, position, order=None):
        """Return the rank of the device at a source position."""
        return self._looked_up(0, position, order)

    def target_rank(self, position, order=None):
        """Return the rank of the device at a target position."""
        return self._looked_up(1, position, order)

    def here(self, order=None, rank=None):
        """Return where a rank, by default this device, stands in the source mesh, and in the target
        mesh: no position of a mesh that it is not in."""
        rank = lax.axis_index(self.axes) if rank is None else rank
        return self._looked_up(2, rank, order), self._looked_up(3, rank, order)

    def within(self, position, side):
        """Return whether a position is one of a mesh; True where all are."""
        return True if self.one_order else (position >= 0) & (position < len(side.ids))

    def holds(self, position, shard):
        """Return whether a source position, which may be none, holds a source shard."""
        if self.one_order:
            return same(self.forms.source_shard(position), shard)
        alike = same(self.forms.source_shard(maximum(position, 0)), shard)
        return self.within(position, self.source) & alike

    def tile(self, own, other, piece):
        """Return the box of a source shard and a target shard, or the piece of it."""
        box = self.forms.tile(*own, *other)
        if not self.pieces:
            return box
        dim = self.pieces.dim
        low, high = box[2 * dim : 2 * dim + 2]
        start, end = self.pieces.range_of(maximum(high - low, 0), piece)
        return (*box[: 2 * dim], low + start, low + end, *box[2 * dim + 2 :])

    def holder(self, shard, receiver, piece):
        """Return who sends a tile, or a piece of it, to a receiver."""
        return self.forms.holder(*shard, receiver, *((piece,) if self.pieces else ()))

    def incoming_count(self, receiver):
        """Return how many pieces a target shard consists of, empty ones included."""
        count = count_of(self.forms.senders(receiver)) * self.count
        return self._within(receiver, self.target, count)

    def outgoing_count(self, me):
        """Return how many pieces a source position may have to send."""
        count = count_of(self.forms.receivers(me)) * self.count * self.replicas
        return self._within(me, self.source, count)

    def _within(self, position, side, count):
        if self.one_order:
            return count
        inside = self.within(position, side)
        return count * (inside if isinstance(inside, bool) else jnp.int32(inside))

    def incoming(self, receiver, me, number):
        """Return the piece of a number of a target shard, and whether it comes from elsewhere.

        `me`: where the receiver stands in the source mesh.
        """
        piece = rem(number, self.count)
        senders = self.forms.senders(receiver)
        shard = shard_at(div(number, self.count), senders, (0,) * (len(senders) // 2))
        box = self.tile(shard, self.forms.target_shard(receiver), piece)
        comes = is_full(ranges(box))
        if self.kept:
            comes = comes & negated(self.holds(me, shard))
        return PeerPiece(comes, self.holder(shard, receiver, piece), shard, piece, box)

    def outgoing(self, me, number, order=None):
        """Return the piece of a number that a source position may send.

        Each device begins at its own place among the receivers, so that they do not all write into
        one of them at a time.
        """
        own, count = self.forms.source_shard(me), self.replicas
        replica = rem(number + me, count)
        piece = rem(div(number, count), self.count)
        few = len(self.target.ids) < len(self.source.ids)
        near = self.forms.target_shard(rem(me, len(self.target.ids)) if few else me)
        shard = shard_at(div(number, count * self.count), self.forms.receivers(me), near)
        receiver = self.forms.target_position(*shard, replica)
        box = self.tile(own, shard, piece)
        sends = is_full(ranges(box)) & (self.holder(own, receiver, piece) == me)
        if self.kept:
            position = receiver
            if not self.one_order:
                position, _ = self.here(order, self.target_rank(receiver, order))
            sends = sends & negated(self.holds(position, own))
        return PeerPiece(sends, receiver, shard, piece, box)

    def meet(self, me, receiver, order=None):
        """Tell every sender that this device has entered the kernel, and hear it of every receiver:
        see `meet_all`."""

        def tells(number):
            comes, sender, *_ = self.incoming(receiver, me, number)
            return comes, jnp.int32(self.source_rank(sender, order))

        def hears(number):
            return self.outgoing(me, number, order).moves

        meet_all(self.incoming_count(receiver), tells, self.outgoing_count(me), hears)

    @functools.cached_property
    def exchange(self):
        """What both ends take for what moves, in plain integers."""
        cut = self.pieces and Cut(self.count, self.pieces.dim, self.pieces.unit)
        return Exchange(self.source.side, self.target.side, self._senders, self._receivers, cut)

    def _senders(self, receiver):
        """Yield the positions that parts of a target shard come from, its own included, each with
        the number of its piece, None for all of a tile."""
        me = self.exchange.source_position(self.target.ids[receiver])
        for number in range(self.incoming_count(receiver)):
            found = self.incoming(receiver, me, number)
            if found.moves:
                yield found.peer, found.piece
            elif self.kept and number % self.count == 0 and self.holds(me, found.shard):
                yield me, None

    def _receivers(self, sender):
        """Yield the positions that parts of a source shard go to, as `_senders`."""
        receiver = self.exchange.target_position(self.source.ids[sender])
        if self.kept and receiver >= 0:
            yield receiver, None
        for number in range(self.outgoing_count(sender)):
            found = self.outgoing(sender, number, self.order)
            if found.moves:
                yield found.peer, found.piece


def shard_at(number, counted, near):
    """Return the shard of a number among (first, count) per dimension; `near`, a shard, says with
    which of them to begin, so that not all begin with one."""
    shard = []
    for (first, count), start in zip(reversed([*ranges(counted)]), reversed(near), strict=True):
        shard.append(first + rem(number + start, count))
        number = div(number, count)
    return tuple(reversed(shard))


def count_of(counted):
    """Return how many shards (first, count) per dimension are."""
    return math.prod(count for _, count in ranges(counted))
