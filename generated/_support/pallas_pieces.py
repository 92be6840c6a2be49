"""The transfers within a kernel: each end computes its pieces independently by index functions.

A position is the number of a device in a mesh. If both meshes list the same devices in the same
order it is also the rank; for other meshes see `pallas_ranks`, whose functions look up ranks in a
table, `order`. Index functions take integers and traced values.
"""

import functools
import math
import operator
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from jax import lax

from .boxes import common, ranges
from .gaps import gap, some
from .pallas_integers import digits_of, is_full
from .pallas_peers import div, rem
from .spread import spread


class Forms(NamedTuple):
    """The index functions of a module. `source_shard`, `target_shard`: the indices, one per
    dimension, of the shard at a position; `tile`: the box where a source and a target shard
    intersect; `senders`, `receivers`: (first, count) per dimension of the shards that intersect the
    shard at a position; `target_position`: the position of a replica of a target shard; `holder`:
    the position that sends a tile or piece to a receiver."""

    source_shard: Callable
    target_shard: Callable
    tile: Callable
    senders: Callable
    receivers: Callable
    target_position: Callable
    holder: Callable


class PeerPiece(NamedTuple):
    """A piece, seen from one end. `moves`: whether it moves between devices; `peer`: the
    position of the other end; `shard`: the indices of the shard there; `piece`: the index of the
    piece."""

    moves: object
    peer: object
    shard: tuple
    piece: object
    box: tuple


class Peers:
    """All transfers of a reshard. `source`, `target`: each a `Sharded`; `replicas`: the number
    of replicas of each target shard; `pieces`: the `Pieces` of tiles, None for whole tiles;
    `kept`: whether any device holds a part of its target shard; `sends`: whether any device
    lacks a part."""

    order: tuple[int, ...] | None = None
    one_order = True

    def __init__(self, source, target, forms, replicas=1, pieces=None, *, kept=True, sends=True):
        self.source, self.target, self.forms, self.proof = source, target, forms, self
        self.replicas, self.pieces, self.kept, self.sends = replicas, pieces, kept, sends
        self.count = pieces.pieces if pieces else 1
        self.axes: str | tuple[str, ...] = tuple(name for name, _ in source.axes)

    def source_rank(self, position, _order=None):
        """Return the rank of the device at a source position."""
        return position

    def target_rank(self, position, _order=None):
        """Return the rank of the device at a target position."""
        return position

    def here(self, _order=None, rank=None):
        """Return the positions of a rank, by default this device's, in the source mesh and in the
        target mesh; an invalid position for a mesh without the device."""
        rank = lax.axis_index(self.axes) if rank is None else rank
        return rank, rank

    def holds(self, position, shard):
        """Return whether a source position, possibly invalid, holds a source shard."""
        pairs = zip(self.forms.source_shard(position), shard, strict=True)
        return functools.reduce(operator.and_, (a == b for a, b in pairs))

    def tile(self, own, other, piece):
        """Return the box of the tile where a source and a target shard intersect, or of a piece of
        the tile."""
        box = self.forms.tile(*own, *other)
        return self.pieces.part(box, piece) if self.pieces else box

    def holder(self, shard, receiver, piece):
        """Return the position that sends a tile, or a piece of it, of a source shard to a
        receiver."""
        return self.forms.holder(*shard, receiver, *((piece,) if self.pieces else ()))

    def incoming_count(self, receiver):
        """Return the number of pieces in a target shard, empty ones included."""
        return math.prod(self.forms.senders(receiver)[1::2]) * self.count

    def outgoing_count(self, me):
        """Return the number of pieces that a source position may send."""
        return math.prod(self.forms.receivers(me)[1::2]) * self.count * self.replicas

    def incoming(self, receiver, me, number):
        """Return piece `number` of a target shard, and whether it comes from another device; `me`:
        the receiver's position in the source mesh."""
        piece = rem(number, self.count)
        shard = shard_of(self.forms.senders(receiver), div(number, self.count))
        box = self.tile(shard, self.forms.target_shard(receiver), piece)
        comes = is_full(ranges(box))
        if self.kept:
            comes = comes & (self.holds(me, shard) ^ True)  # unless the receiver holds it itself
        return PeerPiece(comes, self.holder(shard, receiver, piece), shard, piece, box)

    def outgoing(self, me, number, order=None):
        """Return piece `number` of the pieces that a source position may send.

        Each device starts at a different receiver, so that devices do not all write to one receiver
        at once.
        """
        own, replica = self.forms.source_shard(me), rem(number + me, self.replicas)
        number = div(number, self.replicas)
        piece = rem(number, self.count)
        near = self.forms.target_shard(rem(me, len(self.target.ids)))
        shard = shard_of(self.forms.receivers(me), div(number, self.count), near)
        receiver = self.forms.target_position(*shard, replica)
        box = self.tile(own, shard, piece)
        sends = is_full(ranges(box)) & (self.holder(own, receiver, piece) == me)
        if self.kept:
            position, _ = self.here(order, self.target_rank(receiver, order))
            # unless the receiver holds it itself
            sends = sends & (self.holds(position, own) ^ True)
        return PeerPiece(sends, receiver, shard, piece, box)

    def fault(self):
        """Return the first fault: a target shard that is not filled by what its senders and its own
        device hold of it, or a piece that one end does not list exactly once; "" if there is
        none."""
        source, target = self.source, self.target
        come, leave = functools.cache(self.arrivals), functools.cache(self.departures)
        last = 2 * len(target.hidden)
        for b in spread(len(target.ids)):
            device, whole = target.ids[b], target.box(b)
            held = [common(box, source.box(a)) for a, _, box in come(b).elements()]
            held += [source.box(source.ids.index(device))] if device in source.ids else []
            empty = any(whole[last - 2 * target.new : last : 2])  # a term without a value
            if fault := gap((0, 0) if empty else whole, [common(box, whole) for box in held]):
                return f"device {device}: {fault}"
        pieces = [each for b in spread(len(target.ids)) for each in some([*come(b)])]
        pieces += [each for a in spread(len(source.ids)) for each in some([*leave(a)])]
        for piece in pieces:
            a, b, box = piece
            sent, expected = leave(a)[piece], come(b)[piece]
            if not sent == expected == 1:
                ends = f"from device {source.ids[a]} to device {target.ids[b]}"
                return f"{box} {ends} is sent {sent} times, but expected {expected} times"
        return ""

    def arrivals(self, receiver):
        """Count the pieces that come to a target shard: (sender, receiver, box)."""
        me, _ = self.here(self.order, self.target_rank(receiver, self.order))
        found = (self.incoming(receiver, me, n) for n in range(self.incoming_count(receiver)))
        return Counter((each.peer, receiver, each.box) for each in found if each.moves)

    def departures(self, sender):
        """Count the pieces that leave a source position: (sender, receiver, box)."""
        found = (self.outgoing(sender, n, self.order) for n in range(self.outgoing_count(sender)))
        return Counter((sender, each.peer, each.box) for each in found if each.moves)

    @functools.cached_property
    def exchange(self):
        """Return the same transfers as an `Exchange`."""
        from .pallas_exchange import exchange_of  # only groups and checks of routes need it

        return exchange_of(self)


def shard_of(met, number, near=()):
    """Return shard `number` of the shards `met`, (first, count) per dimension; for `near` see
    `digits_of`."""
    digits = digits_of(number, met[1::2], near)
    return tuple(first + digit for first, digit in zip(met[::2], digits, strict=True))
