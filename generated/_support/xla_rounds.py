"""Boxes exchanged in plain JAX, in rounds of `lax.ppermute`.

Every device runs the same program, as JAX requires, and reads its own row of a table over all
ranks. Ranks are positions if both meshes have one device order, else indices into the sorted ids.
"""

import functools
from collections import defaultdict
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from .boxes import extents
from .exchanges import Exchange, Piece
from .ranks import at, end_ranks


class Box(NamedTuple):
    """A box that a rank sends to another or keeps. `sender`, `receiver`: ranks; `read`, `write`:
    its start in the source and in the target shard; `piece`: the `Piece` of the exchange."""

    sender: int
    receiver: int
    read: list[int]
    write: list[int]
    shape: tuple[int, ...]
    piece: Piece


class Round(NamedTuple):
    """Boxes of which each rank sends and receives at most one. `pairs`: (sender, receiver),
    possibly equal; `window`: the shape that every rank transfers, which fits the largest box;
    shards may have additional leading dimensions. `reads`, `writes`: by rank, the start of the
    window in the sender's and in the receiver's shard; `takes`: by rank, whether it receives a
    box."""

    pairs: list[tuple[int, int]]
    window: tuple[int, ...]
    reads: np.ndarray
    writes: np.ndarray
    takes: np.ndarray

    @staticmethod
    def of(boxes, devices):
        """Return the round of these boxes among `devices` devices."""
        window = tuple(map(max, zip(*(box.shape for box in boxes), strict=True)))
        reads, writes = np.zeros((2, devices, len(window)), np.int32)
        takes = np.zeros(devices, bool)
        for box in boxes:
            reads[box.sender], writes[box.receiver] = box.read, box.write
            takes[box.receiver] = True
        return Round([(b.sender, b.receiver) for b in boxes], window, reads, writes, takes)

    @property
    def sends(self):
        """Return whether any rank sends to another."""
        return any(sender != receiver for sender, receiver in self.pairs)

    def arrives(self, x, axes, me):
        """Send this rank's window of shard `x` and return the window that it receives."""
        box = self.window_of(x, self.reads, me)
        return lax.ppermute(box, axes, self.pairs) if self.sends else box

    def window_of(self, x, starts, me):
        """Return the window of a shard that starts at row `me` of the table `starts`."""
        before = x.ndim - len(self.window)
        start = (*[np.int32(0)] * before, *at(starts, me))
        return lax.dynamic_slice(x, start, (*x.shape[:before], *self.window))

    def put(self, y, box, me, reduce=None):
        """Return the target shard `y` with the arrived window written to it, or combined with it by
        `reduce`; unchanged on ranks that receive none."""
        if reduce is not None or not self.takes.all():
            own = self.window_of(y, self.writes, me)
            box = box if reduce is None else reduce(own, box)
            box = jnp.where(at(self.takes, me), box, own)
        before = y.ndim - len(self.window)
        start = (*[np.int32(0)] * before, *at(self.writes, me))
        return lax.dynamic_update_slice(y, box, start)


def boxes_of(moves, by_id=False):
    """Return the boxes of all transfers; for `by_id` see `end_ranks`."""
    senders, receivers = end_ranks(moves, by_id)
    found = []
    for receiver in range(len(moves.target.ids)):
        for piece in moves.incoming(receiver):
            within = moves.source.box(piece.sender), moves.target.box(receiver)
            read, write = (np.subtract(piece.box[::2], box[::2]).tolist() for box in within)
            ends = senders[piece.sender], receivers[receiver]
            found.append(Box(*ends, read, write, extents(piece.box), piece))
    return found


def listed(rows, source, target):
    """Return the exchange of whole tiles in rounds. `rows`: for each round a row with the rank to
    which every rank sends, or -1 for none."""
    senders, receivers = map(list, end_ranks(Exchange(source, target, None, None)))
    pairs = ((rank, other) for row in rows for rank, other in enumerate(row) if other >= 0)
    ends = ((senders.index(rank), receivers.index(other)) for rank, other in pairs)
    return of_pairs(ends, source, target)


def of_pairs(pairs, source, target):
    """Return the exchange of whole tiles between pairs of positions."""
    sent, taken = defaultdict(list), defaultdict(list)
    for sender, receiver in pairs:
        sent[sender].append(receiver)
        taken[receiver].append(sender)
    return Exchange(source, target, taken.__getitem__, sent.__getitem__, by_plan=False)


@functools.cache
def rounds_of(moves, round_of, by_shape=False, by_rank=False):
    """Return the rounds of an exchange. `round_of`: a function from sender, receiver and piece
    index to the index of the round; `by_rank`: whether it takes ranks instead of positions;
    `by_shape`: whether boxes of different shapes are in different rounds."""
    rounds = defaultdict(list)
    for box in boxes_of(moves):
        ends = box if by_rank else box.piece
        key = round_of(ends.sender, ends.receiver, box.piece.number or 0)
        rounds[(box.shape if by_shape else (), key)].append(box)
    return [Round.of(rounds[key], len(moves.ranks)) for key in sorted(rounds)]


@functools.cache
def listed_rounds(moves, rows):
    """Return the rounds listed in `rows`: for each round a row with the rank to which every rank
    sends, or -1 for none."""
    by_ends = {(box.sender, box.receiver): box for box in boxes_of(moves)}
    ends = [[(s, r) for s, r in enumerate(row) if r >= 0] for row in rows]
    return [Round.of([by_ends[pair] for pair in pairs], len(moves.ranks)) for pairs in ends]


def in_rounds(x, rounds, axes, shape):
    """Run rounds one after another and return the target shard, of shape `shape`."""
    me, y = lax.axis_index(axes), jnp.zeros(shape, x.dtype)
    for each in rounds:
        y = each.put(y, each.arrives(x, axes, me), me)
    return y


def stacked_rounds(x, rounds, axes, axis):
    """Return the arriving windows of all rounds, in order, stacked along a new axis `axis`."""
    me = lax.axis_index(axes)
    return jnp.stack([each.arrives(x, axes, me) for each in rounds], axis)
