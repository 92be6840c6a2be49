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

import jax.numpy as jnp
from jax import lax

from .boxes import ranges
from .cuts import Cut
from .exchanges import Exchange, end_ranks
from .pallas_peers import digits_of, div, is_full, is_traced, maximum, rem


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
        cut = pieces and Cut(pieces.pieces, pieces.dim, pieces.unit)
        ends = source, target, self._senders, self._receivers
        self.exchange = Exchange(*ends, cut, target.hidden, new=target.new)
        self.one_order = tuple(source.ids) == tuple(target.ids)
        names = tuple(name for name, _ in source.axes)
        self.axes = (names if len(names) > 1 else names[0]) if self.one_order else "device"
        self.offsets, self.order = self._ranks()

    def _ranks(self):
        """Return tables: ranks by source position, by target position, and positions in the source
        mesh by rank, and in the target mesh, -1 for none. Before them, in place of them where ids
        are consecutive, by how much they are more than what they are looked up for."""
        ends, ids = end_ranks(self.exchange), (self.source.ids, self.target.ids)
        if self.one_order or all(isinstance(each, range) for each in ids):
            source, target = (ranks[0] for ranks in ends)
            return (source, target, -source, -target), None
        places = [{rank: position for position, rank in enumerate(ranks)} for ranks in ends]
        ranks = range(len(self.exchange.ranks))
        return None, (*ends[0], *ends[1], *(place.get(k, -1) for place in places for k in ranks))

    def _looked_up(self, table, number, order):
        if order is None:
            return number + self.offsets[table]
        sizes = len(self.source.ids), len(self.target.ids), len(self.exchange.ranks)
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
        """Return whether a position is one of a mesh, of two that do not list the same devices."""
        return (position >= 0) & (position < len(side.ids))

    def holds(self, position, shard):
        """Return whether a source position, which may be none, holds a source shard."""
        own = self.forms.source_shard(position if self.one_order else maximum(position, 0))
        alike = [a == b for a, b in zip(own, shard, strict=True)]
        if not self.one_order:
            alike.append(self.within(position, self.source))
        return functools.reduce(operator.and_, alike)

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
        met = math.prod(self.forms.senders(receiver)[1::2])
        return self.counted(receiver, self.target, met * self.count)

    def outgoing_count(self, me):
        """Return how many pieces a source position may have to send."""
        met = math.prod(self.forms.receivers(me)[1::2])
        return self.counted(me, self.source, met * self.count * self.replicas)

    def counted(self, position, side, count):
        """Return a count; none for a position that is not one of a mesh."""
        if self.one_order:
            return count
        inside = self.within(position, side)
        return count * (jnp.int32(inside) if is_traced(inside) else inside)

    def incoming(self, receiver, me, number):
        """Return the piece of a number of a target shard, and whether it comes from elsewhere;
        `me`: where the receiver stands in the source mesh."""
        piece = rem(number, self.count)
        senders = self.forms.senders(receiver)
        digits = digits_of(div(number, self.count), senders[1::2])
        shard = tuple(first + digit for first, digit in zip(senders[::2], digits, strict=True))
        box = self.tile(shard, self.forms.target_shard(receiver), piece)
        comes = is_full(ranges(box))
        if self.kept:
            comes = comes & (self.holds(me, shard) ^ True)  # unless the receiver holds it
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
        receivers = self.forms.receivers(me)
        digits = digits_of(div(number, count * self.count), receivers[1::2], near)
        shard = tuple(first + digit for first, digit in zip(receivers[::2], digits, strict=True))
        receiver = self.forms.target_position(*shard, replica)
        box = self.tile(own, shard, piece)
        sends = is_full(ranges(box)) & (self.holder(own, receiver, piece) == me)
        if self.kept:
            position = receiver
            if not self.one_order:
                position, _ = self.here(order, self.target_rank(receiver, order))
            sends = sends & (self.holds(position, own) ^ True)  # unless the receiver holds it
        return PeerPiece(sends, receiver, shard, piece, box)

    def kept_by(self, me, receiver):
        """Return whether a device has a part of its own target shard, and the box of that."""
        own, wanted = self.forms.source_shard(me), self.forms.target_shard(receiver)
        box = self.forms.tile(*own, *wanted)
        has = is_full(ranges(box))
        if not self.one_order:
            has = has & self.holds(me, own) & self.within(receiver, self.target)
        return has, box

    def is_filled(self, receiver):
        """Return whether anything comes to a target position: not to a term without a value."""
        box, last = self.target.box(receiver), 2 * len(self.target.hidden)
        firsts = box[last - 2 * self.target.new : last : 2]
        found = is_full([*ranges(box), *((first, 1) for first in firsts)])
        return found if self.one_order else found & self.within(receiver, self.target)

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
