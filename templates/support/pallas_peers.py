"""Who sends what to whom within a kernel: each end finds its pieces alone, by index functions.

A position numbers a device in a mesh, a rank in the sorted union of the ids of both meshes, which
are one where both list the same devices in the same order. Functions that take `order` look ranks
up in that table, where ids have no closed form. Index functions compute with integers and with
traced values.
"""

import functools
import itertools
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


def is_traced(*values):
    """Return whether any of some values is traced: of others nothing is compiled."""
    return any(isinstance(value, jax.core.Tracer) for value in values)


def minimum(a, b):
    """Return the smaller of two integers."""
    return jnp.minimum(a, b) if is_traced(a, b) else min(a, b)


def maximum(a, b):
    """Return the larger of two integers."""
    return jnp.maximum(a, b) if is_traced(a, b) else max(a, b)


def div(a, b):
    """Return the quotient of integers that are not negative: one operation of a kernel, where `//`
    is nine to floor those that are, and a division that minds signs five by a power of two."""
    if _is_power_of_two(b):
        return a >> b.bit_length() - 1 if b > 1 else a
    return lax.div(a, operand(b)) if is_traced(a) else a // b


def rem(a, b):
    """Return the remainder of integers that are not negative."""
    if _is_power_of_two(b):
        return a & b - 1 if b > 1 else 0
    return lax.rem(a, operand(b)) if is_traced(a) else a % b


def _is_power_of_two(b):
    return isinstance(b, int) and b > 0 and b & (b - 1) == 0


def operand(b):
    """Return an integer in 32 bits, whichever JAX would make of it."""
    return np.int32(b) if isinstance(b, int) else b


def is_full(ranges):
    """Return whether a box of ranges (low, high) has any element."""
    return functools.reduce(operator.and_, (low < high for low, high in ranges))


def multiple(index, divisor):
    """Return an index, known to the compiler to be a multiple of the divisor."""
    return index if isinstance(index, int) else pl.multiple_of(index, divisor)


def meet_all(coming, tells, expected):
    """Tell all senders that this device has entered the kernel, and hear it of all receivers, so
    many as are expected: they may be written to from then on. tells(number), below `coming`:
    whether a sender is told, its rank, and how much it sends. Return how much all send.

    A device tells again only after all data of the call before have arrived, so that a sender never
    holds two signals of one receiver.
    """
    barrier = pltpu.get_barrier_semaphore()

    def tell(number):
        told, device, amount = tells(number)

        @pl.when(told)
        def signal():
            pl.semaphore_signal(barrier, 1, device_id=device, device_id_type=LOGICAL)

        return jnp.where(told, jnp.int32(amount), 0)

    amount = total(coming, tell)
    pl.when(expected > 0)(lambda: pl.semaphore_wait(barrier, expected))
    return amount


def total(count, of):
    """Return the sum of what `of` gives for every number below a count, two of them at a time."""

    def one(number, found):
        return found + jnp.int32(of(number))

    def pair(half, found):
        return one(2 * half + 1, one(2 * half, found))

    pairs = div(count, 2)
    found = lax.fori_loop(np.int32(0), jnp.int32(pairs), pair, np.int32(0))
    return lax.fori_loop(jnp.int32(2 * pairs), jnp.int32(count), one, found)


def far_apart(place, count):
    """Return the number in a place when those below a count are taken in steps of some 0.41 of it.

    Receivers are numbered from a device on: those that it sends to at a time are far apart then,
    and all links are at work. They stay in order where the count is not known, or so large that
    the products below would not fit 32 bits.
    """
    if not isinstance(count, int) or count > 1 << 16:
        return place
    steps = itertools.count(max(round(0.41 * count), 1))
    return rem(place * next(step for step in steps if math.gcd(step, count) == 1), count)


def total_far_apart(count, of):
    """Return what `total` does, of the numbers in that order."""
    return total(count, lambda place: of(far_apart(place, count)))


def each(count, visit, first=0):
    """Call visit(number) for every number below a count."""

    def one(number, carry):
        visit(number)
        return carry

    lax.fori_loop(np.int32(first), jnp.int32(count), one, np.int32(0))


def units_in(sizes, unit):
    """Return how many boxes of the extents `unit` fill one of such sizes, none an empty one."""
    return math.prod(div(maximum(size, 0), each) for size, each in zip(sizes, unit, strict=True))


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
        ends = source.side, target.side, self._senders, self._receivers
        self.exchange = Exchange(*ends, cut, target.hidden, new=target.new)
        self.one_order = tuple(source.ids) == tuple(target.ids)
        names = tuple(name for name, _ in source.axes)
        self.axes = (names if len(names) > 1 else names[0]) if self.one_order else "device"
        self.offsets, self.order = self._ranks()

    def _ranks(self):
        """Return tables: ranks by source position, by target position, and positions in the source
        mesh by rank, and in the target mesh, -1 for none. Before them, in place of them where ids
        are consecutive, by how much they are more than what they are looked up for."""
        ends, ids = self.exchange.end_ranks(), (self.source.ids, self.target.ids)
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

    def meet(self, me, receiver, order=None, amount=lambda _: 0):
        """Tell every sender that this device has entered the kernel, and hear it of every receiver:
        see `meet_all`. Return the `amount` of all pieces that come."""

        def tells(number):
            piece = self.incoming(receiver, me, number)
            return piece.moves, jnp.int32(self.source_rank(piece.peer, order)), amount(piece)

        going = self.outgoing_count(me)
        expected = total(going, lambda number: self.outgoing(me, number, order).moves)
        return meet_all(self.incoming_count(receiver), tells, expected)

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


def digits_of(number, sizes, near=()):
    """Return the digits of a number in a mixed radix of these sizes, the first one the highest;
    each counted on from that of `near`, modulo its size, so that not all begin with one."""
    digits = []
    for axis in reversed(range(len(sizes))):
        digits.append(rem(number + near[axis] if near else number, sizes[axis]))
        number = div(number, sizes[axis])
    return digits[::-1]
