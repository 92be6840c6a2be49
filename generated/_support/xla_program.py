"""Programs in plain JAX: `lax` collectives within `shard_map`, and boxes that devices exchange: in
rounds, among groups, as ragged rows.

What is done with a table of all ranks is the same program on every device, as JAX wants it; a
device takes its row. Ranks are positions where both meshes have one order, else places among the
sorted ids.
"""

import functools
from collections import defaultdict
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from .boxes import Exchange, Piece, common, extents
from .jax_meshes import at, bits_of, end_ranks
from .jax_program import Program, Terms

TENSOR = Terms()  # of sides without terms


class XlaProgram(Program):
    """`exchange_of` makes the target shard of a source shard; `axes`: those over which devices are
    ranked; `reduces`: whether it computes with the elements; `as_floats`: whether a TPU moves every
    bit of small floats as they are, for which the generator has the rule."""

    def __init__(
        self, exchange_of, axes, short=(), reduces=False, terms=TENSOR, moves=None, as_floats=False
    ):
        self._exchange_of, self._axes, self.short = exchange_of, axes, short
        self._reduces, self.terms, self.moves = reduces, terms, moves
        self._as_floats = as_floats

    def as_bits(self, interpret):
        """Return whether elements are given as integers of their width: small floats, with which
        XLA may compute in larger ones where they are but moved. Of others it moves every bit, and
        on CPU another type takes a pass over memory."""
        del interpret
        small = self.floating and self.host.dtype.itemsize < 4
        return small and not self._reduces and not self._as_floats

    def exchange(self, shard, order, interpret, collective_id):
        """Return the target shard, its padding zero."""
        del order, collective_id
        if self._as_floats:  # on a TPU another type takes two passes over memory
            y = lax.platform_dependent(shard, tpu=self._exchange_of, default=self._by_bits)
        else:
            y = self._exchange_of(shard)
        if self.short:
            y = self.zeroed(y, at(self._extents, lax.axis_index(self._axes)))
        if self.as_bits(interpret):
            y = _apart(y, lax.axis_index(self._axes))
        return y if self.host.target.local else y.reshape(())  # a scalar may move as a vector

    def _by_bits(self, shard):
        """Return the target shard, its elements moved as integers of their width."""
        bits = lax.bitcast_convert_type(shard, bits_of(shard.dtype))
        y = _apart(self._exchange_of(bits), lax.axis_index(self._axes))
        return lax.bitcast_convert_type(y, shard.dtype)

    @functools.cached_property
    def _extents(self):
        """The exact shape of the target shard of every rank."""
        target, ranks = self.host.target, self.host.ranks
        if tuple(target.ids) == tuple(self.host.source.ids):
            ranks = list(target.ids)  # ranked as the mesh has them
        extent = np.zeros((len(ranks), len(target.local)), np.int32)
        for position, device_id in enumerate(target.ids):
            extent[ranks.index(device_id)] = extents(target.box(position))
        return extent


def _apart(y, me):
    """Return bits as they are. On CPU they come out of a branch, with which XLA fuses nothing: a
    loop that chooses bits and makes floats of them chooses floats, and changes NaNs of 16 bits."""

    def branch(y):
        return lax.cond(me < 0, lax.bitwise_not, lambda y: y, y)

    return lax.platform_dependent(y, cpu=branch, default=lambda y: y)


class Box(NamedTuple):
    """What a rank sends to another, or keeps: where it starts in the shards of both; its shape; the
    piece that it is."""

    sender: int
    receiver: int
    read: list[int]
    write: list[int]
    shape: tuple[int, ...]
    piece: Piece


class Round(NamedTuple):
    """Boxes of which each rank sends one at most, and takes one. `pairs`: (sender, receiver), maybe
    both the same; `window`: the shape that travels, that of the largest box, after what dimensions
    shards have before its own; by rank, `reads` and `writes`: where it starts in the shards of a
    sender and of a receiver; `takes`: who receives."""

    pairs: list[tuple[int, int]]
    window: tuple[int, ...]
    reads: np.ndarray
    writes: np.ndarray
    takes: np.ndarray

    @staticmethod
    def of(boxes, devices):
        """Return the round of these boxes among so many devices."""
        window = tuple(map(max, zip(*(box.shape for box in boxes), strict=True)))
        reads, writes = np.zeros((2, devices, len(window)), np.int32)
        takes = np.zeros(devices, bool)
        for box in boxes:
            reads[box.sender], writes[box.receiver] = box.read, box.write
            takes[box.receiver] = True
        return Round([(b.sender, b.receiver) for b in boxes], window, reads, writes, takes)

    @property
    def sends(self):
        """Whether any rank sends to another."""
        return any(sender != receiver for sender, receiver in self.pairs)

    def arrives(self, x, axes, me):
        """Return the window that arrives, of the source shard."""
        box = self.window_of(x, self.reads, me)
        return lax.ppermute(box, axes, self.pairs) if self.sends else box

    def window_of(self, x, starts, me):
        """Return the window of a shard that starts where a table says."""
        before = x.ndim - len(self.window)
        start = (*[np.int32(0)] * before, *at(starts, me))
        return lax.dynamic_slice(x, start, (*x.shape[:before], *self.window))

    def put(self, y, box, me, reduce=None):
        """Return the target shard with the window that arrived in it."""
        if reduce is not None or not self.takes.all():
            own = self.window_of(y, self.writes, me)
            box = box if reduce is None else reduce(own, box)
            box = jnp.where(at(self.takes, me), box, own)
        before = y.ndim - len(self.window)
        start = (*[np.int32(0)] * before, *at(self.writes, me))
        return lax.dynamic_update_slice(y, box, start)


def boxes_of(moves, by_id=False):
    """Return the boxes of everything that devices take."""
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
    """Return the exchange in which every rank sends a whole tile, in each of some rounds, to the
    rank in the round's row, or to none (-1)."""
    senders, receivers = map(list, end_ranks(Exchange(source, target, None, None)))
    pairs = ((rank, other) for row in rows for rank, other in enumerate(row) if other >= 0)
    ends = ((senders.index(rank), receivers.index(other)) for rank, other in pairs)
    return _of_pairs(ends, source, target)


def fetches(senders, groups, source, target):
    """Return the exchange in which every rank fetches a box from `senders[rank]`, maybe itself, and
    has the others of its group, if there are any, by what they fetch."""
    groups = groups or [(rank,) for rank in range(len(senders))]
    pairs = [(senders[mate], rank) for group in groups for rank in group for mate in group]
    return _of_pairs(pairs, source, target)


def _of_pairs(pairs, source, target):
    """Return the exchange of whole tiles between pairs of positions."""
    sent, taken = defaultdict(list), defaultdict(list)
    for sender, receiver in pairs:
        sent[sender].append(receiver)
        taken[receiver].append(sender)
    return Exchange(source, target, taken.__getitem__, sent.__getitem__, by_plan=False)


@functools.cache
def rounds_of(moves, round_of, by_shape=False, by_rank=False):
    """Return the rounds of an exchange. `round_of` numbers those of the boxes, by the positions of
    the ends, or their ranks, and the number of the piece; `by_shape`: boxes of another shape are in
    another round."""
    rounds = defaultdict(list)
    for box in boxes_of(moves):
        ends = box if by_rank else box.piece
        key = round_of(ends.sender, ends.receiver, box.piece.number or 0)
        rounds[(box.shape if by_shape else (), key)].append(box)
    return [Round.of(rounds[key], len(moves.ranks)) for key in sorted(rounds)]


@functools.cache
def listed_rounds(moves, rows):
    """Return the rounds of an exchange that rows list."""
    by_ends = {(box.sender, box.receiver): box for box in boxes_of(moves)}
    ends = [[(s, r) for s, r in enumerate(row) if r >= 0] for row in rows]
    return [Round.of([by_ends[pair] for pair in pairs], len(moves.ranks)) for pairs in ends]


def in_rounds(x, rounds, axes, shape):
    """Return the target shard, whose windows arrive one after another."""
    me, y = lax.axis_index(axes), jnp.zeros(shape, x.dtype)
    for each in rounds:
        y = each.put(y, each.arrives(x, axes, me), me)
    return y


def stacked_rounds(x, rounds, axes, axis):
    """Return the windows that arrive, one round after another along a new axis."""
    me = lax.axis_index(axes)
    return jnp.stack([each.arrives(x, axes, me) for each in rounds], axis)


@functools.cache
def _groups_of(moves):
    """Return the groups in which everything moves, in the order in which boxes lie in the shard of
    their receiver; the shape of boxes; and by rank where that for the i-th member starts
    (reads[i])."""
    boxes = boxes_of(moves)
    givers = defaultdict(list)
    for box in boxes:
        givers[box.receiver].append((*box.write, box.sender))
    groups = {taker: [sender for *_, sender in sorted(each)] for taker, each in givers.items()}
    window = tuple(map(max, zip(*(box.shape for box in boxes), strict=True)))
    reads = np.zeros((len(groups[0]), len(moves.ranks), len(window)), np.int32)
    for box in boxes:
        reads[groups[box.sender].index(box.receiver), box.sender] = box.read
    return sorted(set(map(tuple, groups.values()))), window, reads


def among_groups(x, moves, axes):
    """Return the windows of a target shard one after the other along their first dimension."""
    me, (groups, window, reads) = lax.axis_index(axes), _groups_of(moves)
    boxes = jnp.concatenate([lax.dynamic_slice(x, at(table, me), window) for table in reads])
    return lax.all_to_all(boxes, axes, 0, 0, axis_index_groups=groups, tiled=True)


def fetched(x, source, target, senders, axes, window):
    """Return the window that every rank has of one shard: that of `senders[rank]`, maybe itself."""
    reads = np.zeros((len(senders), len(window)), np.int32)
    for receiver, sender in enumerate(senders):
        own = source.box(sender)
        reads[sender] = np.subtract(common(own, target.box(receiver))[::2], own[::2])
    return lax.dynamic_slice(x, at(reads, lax.axis_index(axes)), window)


def permuted(x, axes, senders):
    """Return what every rank has of the one that `senders` lists for it."""
    return lax.ppermute(x, axes, [(sender, rank) for rank, sender in enumerate(senders)])


def along(groups, grid, dim):
    """Return the groups of ranks whose boxes follow one another along a dimension of their grid."""
    rows = np.moveaxis(np.reshape(groups, (-1, *grid)), dim + 1, -1)
    return rows.reshape(-1, grid[dim]).tolist()


@functools.cache
def _ragged_tables(moves, axis, unit):
    """Return reads, sizes and writes [sender, receiver]: where the rows of a box start in the
    source shard, how many they are, and where they start in the target shard."""
    tables = np.zeros((3, len(moves.ranks), len(moves.ranks)), np.int32)
    for box in boxes_of(moves):
        tables[:, box.sender, box.receiver] = box.read[axis], box.shape[axis], box.write[axis]
    return tables // unit


def ragged(x, moves, axes, shape, axis, unit=1):
    """Return the rows of the target shard, a shape of rows, from those of the source shard; a row
    has `unit` indices of a dimension."""
    tables = _ragged_tables(moves, axis, unit)

    def at_once(x):
        me = lax.axis_index(axes)
        reads, sizes, writes = tables
        sent, taken = [at(table, me) for table in (reads, sizes, writes)], at(sizes.T, me)
        y = jnp.zeros(shape, x.dtype)
        return lax.ragged_all_to_all(x, y, *sent, taken, axis_name=axes)

    def by_distance(x):
        me, ranks = lax.axis_index(axes), np.arange(len(moves.ranks))
        y = jnp.zeros(shape, x.dtype)
        for distance in ranks.tolist():
            takers = (ranks + distance) % len(ranks)
            reads, sizes, writes = tables[:, ranks, takers]
            rows = np.arange(sizes.max())
            if not rows.size:
                continue
            box = jnp.take(x, at(reads, me) + rows, axis=0, mode="clip")
            if distance:
                pairs = list(zip(ranks.tolist(), takers.tolist(), strict=True))
                box = lax.ppermute(box, axes, pairs)
            # What arrives is as large as its sender says, which is `distance` ranks before.
            size, write = (at(np.roll(table, distance), me) for table in (sizes, writes))
            y = y.at[jnp.where(rows < size, write + rows, len(y))].set(box, mode="drop")
        return y

    # XLA on CPU has no ragged all-to-all.
    return lax.platform_dependent(x, cpu=by_distance, default=at_once)
