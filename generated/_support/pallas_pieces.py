"""Who sends what to whom within a kernel: each end finds its pieces alone, by index functions.

A position numbers a device in a mesh. Where both meshes list the same devices in the same order it
is the rank of the device, too; see `pallas_ranks` for other meshes, whose functions look ranks up
in a table, `order`. Index functions compute with integers and with traced values.
"""

import functools
import math
import operator
from collections.abc import Callable
from typing import NamedTuple

from jax import lax

from .boxes import ranges
from .exchanges import Exchange
from .pallas_peers import digits_of, div, is_full, rem


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
    `pieces`: those that tiles are cut into, if they are; `kept`: whether any device holds a part of
    its target shard; `sends`: whether any lacks one."""

    order: tuple[int, ...] | None = None
    one_order = True

    def __init__(self, source, target, forms, replicas=1, pieces=None, *, kept=True, sends=True):
        self.source, self.target, self.forms = source, target, forms
        self.replicas, self.pieces, self.kept, self.sends = replicas, pieces, kept, sends
        self.count = pieces.pieces if pieces else 1
        ends = source, target, self._senders, self._receivers
        self.exchange = Exchange(*ends, pieces and pieces.cut, target.hidden, new=target.new)
        names = tuple(name for name, _ in source.axes)
        self.axes: str | tuple[str, ...] = names if len(names) > 1 else names[0]

    def source_rank(self, position, order=None):
        """Return the rank of the device at a source position."""
        del order
        return position

    def target_rank(self, position, order=None):
        """Return the rank of the device at a target position."""
        del order
        return position

    def here(self, order=None, rank=None):
        """Return where a rank, by default this device, stands in the source mesh, and in the target
        mesh: no position of a mesh that it is not in."""
        rank = lax.axis_index(self.axes) if rank is None else rank
        return self.source_rank(rank, order), self.target_rank(rank, order)

    def holds(self, position, shard):
        """Return whether a source position, which may be none, holds a source shard."""
        own = self.forms.source_shard(position)
        alike = [a == b for a, b in zip(own, shard, strict=True)]
        return functools.reduce(operator.and_, alike)

    def tile(self, own, other, piece):
        """Return the box of a source shard and a target shard, or the piece of it."""
        box = self.forms.tile(*own, *other)
        return self.pieces.part(box, piece) if self.pieces else box

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
        del position, side
        return count

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
            position, _ = self.here(order, self.target_rank(receiver, order))
            sends = sends & (self.holds(position, own) ^ True)  # unless the receiver holds it
        return PeerPiece(sends, receiver, shard, piece, box)

    def kept_by(self, me, receiver):
        """Return whether a device has a part of its own target shard, and the box of that."""
        own, wanted = self.forms.source_shard(me), self.forms.target_shard(receiver)
        box = self.forms.tile(*own, *wanted)
        return is_full(ranges(box)), box

    def is_filled(self, receiver):
        """Return whether anything comes to a target position: not to a term without a value."""
        box, last = self.target.box(receiver), 2 * len(self.target.hidden)
        firsts = box[last - 2 * self.target.new : last : 2]
        return is_full([*ranges(box), *((first, 1) for first in firsts)])

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
