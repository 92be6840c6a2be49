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

from .boxes import ranges
from .pallas_integers import digits_of, is_full
from .pallas_peers import div, rem
from .spread import at_some, common, gap, some, spread, volume


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
        self.source, self.target, self.forms = source, target, forms
        self.replicas, self.pieces, self.kept, self.sends = replicas, pieces, kept, sends
        self.count = pieces.pieces if pieces else 1
        self.proof = self.exchange if pieces else self
        names = tuple(name for name, _ in source.axes)
        self.axes: str | tuple[str, ...] = names if len(names) > 1 else names[0]

    def source_rank(self, position, _order=None):
        """Return the rank of the device at a source position."""
        return position

    def target_rank(self, position, _order=None):
        """Return the rank of the device at a target position."""
        return position

    def here(self, order=None, rank=None):
        """Return the positions of a rank, by default this device's, in the source mesh and in the
        target mesh; an invalid position for a mesh without the device."""
        rank = lax.axis_index(self.axes) if rank is None else rank
        return self.source_rank(rank, order), self.target_rank(rank, order)

    def holds(self, position, shard):
        """Return whether a source position, possibly invalid, holds a source shard."""
        own = self.forms.source_shard(position)
        alike = [a == b for a, b in zip(own, shard, strict=True)]
        return functools.reduce(operator.and_, alike)

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
        met = math.prod(self.forms.senders(receiver)[1::2])
        return self.counted(receiver, self.target, met * self.count)

    def outgoing_count(self, me):
        """Return the number of pieces that a source position may send."""
        met = math.prod(self.forms.receivers(me)[1::2])
        return self.counted(me, self.source, met * self.count * self.replicas)

    def counted(self, _position, _side, count):
        """Return `count`; `RankedPeers` returns 0 for a position outside the mesh."""
        return count

    def incoming(self, receiver, me, number):
        """Return piece `number` of a target shard, and whether it comes from another device; `me`:
        the receiver's position in the source mesh."""
        piece = rem(number, self.count)
        senders = self.forms.senders(receiver)
        digits = digits_of(div(number, self.count), senders[1::2])
        shard = tuple(first + digit for first, digit in zip(senders[::2], digits, strict=True))
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
            # unless the receiver holds it itself
            sends = sends & (self.holds(position, own) ^ True)
        return PeerPiece(sends, receiver, shard, piece, box)

    def fault(self):
        """Return the first fault: a tile that one end does not list exactly once, or a target shard
        that its tiles do not fill; "" if there is none."""
        source, target = self.source, self.target
        tile = functools.cache(lambda a, b: common(source.box(a), target.box(b)))
        full = functools.cache(lambda a, b: volume(tile(a, b)) > 0)
        come = functools.cache(lambda b: Counter(a for a in self._senders(b) if full(a, b)))
        leave = functools.cache(lambda a: Counter(b for b in self._receivers(a) if full(a, b)))
        last = 2 * len(target.hidden)
        for b in spread(len(target.ids)):
            empty = any(target.box(b)[last - 2 * target.new : last : 2])  # a term without a value
            tiles = [tile(a, b) for a in come(b).elements()]
            if fault := gap((0, 0) if empty else target.box(b), tiles):
                return f"device {target.ids[b]}: {fault}"
        pairs = [(a, b) for b in spread(len(target.ids)) for a in some([*come(b)])]
        pairs += [(a, b) for a in spread(len(source.ids)) for b in some([*leave(a)])]
        for a, b in pairs:
            if come(b)[a] != 1 or leave(a)[b] != 1:
                ends = f"from device {source.ids[a]} to device {target.ids[b]}"
                one, other = ("expected", "sent")[:: 1 if come(b)[a] else -1]
                return f"{tile(a, b)} {ends} is {one} there, but not {other} exactly once"
        return ""

    def proved(self):
        """Return " at N of M devices" if `fault` checks only some devices, else ""."""
        return at_some(max(len(self.source.ids), len(self.target.ids)))

    @functools.cached_property
    def exchange(self):
        """Return the same transfers as an `Exchange`."""
        ends = self.source, self.target, self._senders, self._receivers
        terms = {"hidden": self.target.hidden, "new": self.target.new}
        if self.pieces:
            return self.pieces.exchange(*ends, **terms)
        from .exchanges import Exchange  # only groups and partial offsets need it

        return Exchange(*ends, **terms)

    def _senders(self, receiver):
        """Yield the positions from which the parts of a target shard come, including the
        receiver's own, in the form of `_end`."""
        me, _ = self.here(self.order, self.target_rank(receiver, self.order))
        for number in range(self.incoming_count(receiver)):
            found = self.incoming(receiver, me, number)
            if found.moves:
                yield self._end(found.peer, found.piece)
            elif self.kept and number % self.count == 0 and self.holds(me, found.shard):
                yield self._end(me)

    def _receivers(self, sender):
        """Yield the positions that need parts of a source shard, including the sender's own."""
        _, receiver = self.here(self.order, self.source_rank(sender, self.order))
        if self.kept and self.counted(receiver, self.target, 1):
            yield self._end(receiver)
        for number in range(self.outgoing_count(sender)):
            found = self.outgoing(sender, number, self.order)
            if found.moves:
                yield self._end(found.peer, found.piece)

    def _end(self, position, piece=None):
        """Return a position or, if tiles are cut, the pair of a position and a piece index (None
        for a whole tile)."""
        return (position, piece) if self.pieces else position
