"""The transfers of one exchange in plain integers; each end computes its pieces independently.

A box is a product of half-open ranges, one after another: (low, high, low, high, ...). A tile is
the intersection of a source shard and a target shard. A position is the row-major number of a
device in a mesh; source and target may be on different meshes.
"""

import functools
from collections import Counter
from typing import Any, NamedTuple

from .boxes import common
from .gaps import gap, some, volume
from .spread import spread


class Piece(NamedTuple):
    """A piece of a tile that a device sends to another or keeps. `sender`, `receiver`:
    positions; `number`: the index of the piece within its tile, None for a whole tile."""

    sender: int
    receiver: int
    box: tuple[int, ...]
    number: int | None = None


class Exchange:
    """The transfers of one reshard, in whole tiles (`CutExchange`: in pieces). `source` and
    `target` have `ids`, the device ids by position, and `box`, a function from a position to the
    box of its shard. `senders(receiver)` yields the positions that hold parts of a receiver's
    target shard, `receivers(sender)` the positions that need parts of a sender's source shard; a
    device may be among its own senders and receivers. `hidden`: the extents of the leading box
    dimensions, which number terms; along the last `new` of them only the first term has a value
    and receives data. `by_plan`: whether the plan fixes the senders."""

    cut: Any = None

    def __init__(self, source, target, senders, receivers, hidden=(), by_plan=True, new=0):
        self.source, self.target, self.by_plan = source, target, by_plan
        self.hidden, self.new = hidden, new
        self._senders, self._receivers = senders, receivers
        self.ranks = sorted({*source.ids, *target.ids})

    def source_position(self, device_id):
        """Return a device's position in the source mesh; -1 if the device is outside the mesh."""
        return self.source.ids.index(device_id) if device_id in self.source.ids else -1

    def target_position(self, device_id):
        """Return a device's position in the target mesh; -1 if the device is outside the mesh."""
        return self.target.ids.index(device_id) if device_id in self.target.ids else -1

    def is_empty(self, receiver):
        """Return whether the target shard at a position is a term without a value."""
        last = 2 * len(self.hidden)
        return any(self.target.box(receiver)[last - 2 * self.new : last : 2])

    def held(self, shape):
        """Return the extents that the source boxes of a tensor of this shape cover together, hidden
        dimensions first."""
        kept = len(self.hidden) - self.new
        return (*self.hidden[:kept], *[1] * self.new, *shape)

    def incoming(self, receiver):
        """Return the pieces that make up the target shard at a position."""
        return self.full((sender, receiver) for sender in self._senders(receiver))

    def outgoing(self, sender):
        """Return the pieces of the source shard at a position, including the pieces that the device
        keeps."""
        return self.full((sender, receiver) for receiver in self._receivers(sender))

    def full(self, ends):
        """Return the non-empty tiles of (sender, receiver) pairs."""
        tiles = [Piece(s, r, common(self.source.box(s), self.target.box(r))) for s, r in ends]
        return [tile for tile in tiles if volume(tile.box)]

    def fault(self):
        """Return the first fault: a piece that one end does not list exactly once, or a target
        shard that its pieces do not fill; "" if there is none."""
        received = functools.cache(lambda receiver: Counter(self.incoming(receiver)))
        sent = functools.cache(lambda sender: Counter(self.outgoing(sender)))
        for receiver in spread(len(self.target.ids)):
            for piece in some([*received(receiver)]):
                if sent(piece.sender)[piece] != 1 or received(receiver)[piece] != 1:
                    return f"{self._said(piece)} is expected there, but not sent exactly once"
            whole = (0, 0) if self.is_empty(receiver) else self.target.box(receiver)
            if fault := gap(whole, [piece.box for piece in received(receiver).elements()]):
                return f"device {self.target.ids[receiver]}: {fault}"
        for sender in spread(len(self.source.ids)):
            for piece in some([*sent(sender)]):
                if received(piece.receiver)[piece] != 1:
                    return f"{self._said(piece)} is sent there, but not expected exactly once"
        return ""

    def _said(self, piece):
        sender, receiver = self.source.ids[piece.sender], self.target.ids[piece.receiver]
        return f"{piece.box} from device {sender} to device {receiver}"
