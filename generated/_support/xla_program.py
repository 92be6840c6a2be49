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
from .jax_program import Program


class Terms(NamedTuple):
    """Dimension 0 of source or target stands for unreduced axes: sums to be made. `operator`: what
    makes one value of the terms of the source; `target_operator`: of those of the target;
    `transposed`: whether cotangents are moved, of which every term is the tensor."""

    operator: str = "sum"
    target_operator: str = "sum"
    transposed: bool = False


class XlaProgram(Program):
    """`exchange_of` makes the target shard of a source shard; `axes`: those over which devices are
    ranked; `reduces`: whether it computes with the elements."""

    def __init__(self, exchange_of, axes, short=(), reduces=False, terms=None, moves=None):
        self._exchange_of, self._axes, self.short = exchange_of, axes, short
        self._reduces, self._terms, self.moves = reduces, terms, moves

    def as_bits(self, interpret):
        """Return whether elements are given as integers of their width."""
        del interpret
        return self.floating and not self._reduces

    def exchange(self, shard, order, interpret, collective_id):
        """Return the target shard, its padding zero."""
        del order, interpret, collective_id
        y = self._exchange_of(shard)
        if self.short:
            y = self.zeroed(y, at(self._extents, lax.axis_index(self._axes)))
        return y if self.host.target.local else y.reshape(())  # a scalar may move as a vector

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

    def numbered(self, tensor):
        """Return a tensor of small numbers as `pad` takes it, and as `read` gives it."""
        host, dtype = self.host, self.host.dtype
        given = (self._terms_of(tensor) if host.source.terms else tensor).astype(dtype)
        tensor = tensor.astype(dtype)
        if host.target.terms and self._terms.transposed:
            return given, np.stack([tensor] * host.target.padded[0])
        return given, tensor

    def _terms_of(self, tensor):
        """Return terms of a tensor of which its operator alone makes the tensor."""
        count, operator = self.host.source.padded[0], self._terms.operator
        if self._terms.transposed:
            return np.stack([tensor] * count)
        # One of an element's terms has the element, the others less, more, or 1 and -1 in turn.
        turn = (np.arange(count).reshape(-1, *[1] * tensor.ndim) - tensor) % count
        others = {"min": tensor + 1, "max": np.maximum(tensor - 1, 0)}
        if operator in others:
            return np.where(turn == 0, tensor, others[operator])
        own = tensor - (count - 1) % 2
        return np.where(turn == 0, own, np.where(turn % 2, 1, -1))

    def read(self, result):
        """Return the tensor that an unpadded result stands for."""
        if not self.host.target.terms or self._terms.transposed:
            return result
        return getattr(np.asarray(result, np.float32), self._terms.target_operator)(axis=0)


def at(table, me):
    """Return the row of a rank in a table; the row itself where all are the same."""
    if (table == table[0]).all():
        return table[0]
    return lax.dynamic_index_in_dim(jnp.asarray(table), me, keepdims=False)


class Box(NamedTuple):
    """What a rank sends to another, or keeps: where it starts in the shards of both; its shape; the
    piece that it is."""

    sender: int
    receiver: int
    read: tuple[int, ...]
    write: tuple[int, ...]
    shape: tuple[int, ...]
    piece: Piece


class Round(NamedTuple):
    """Boxes of which each rank sends one at most, and takes one. `pairs`: (sender, receiver), maybe
    both the same; `window`: the shape that travels, that of the largest box; by rank, `reads` and
    `writes`: where it starts in the shards of a sender and of a receiver; `takes`: who receives."""

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

    def arrives(self, x, axes, me):
        """Return the window that arrives, of the source shard."""
        box = lax.dynamic_slice(x, at(self.reads, me), self.window)
        if any(sender != receiver for sender, receiver in self.pairs):
            box = lax.ppermute(box, axes, self.pairs)
        return box

    def put(self, y, box, me, reduce=None):
        """Return the target shard with the window that arrived in it."""
        start = at(self.writes, me)
        if reduce is not None or not self.takes.all():
            own = lax.dynamic_slice(y, start, self.window)
            box = box if reduce is None else reduce(own, box)
            box = jnp.where(at(self.takes, me), box, own)
        return lax.dynamic_update_slice(y, box, start)


def boxes_of(moves, by_id=False):
    """Return the boxes of everything that devices take."""
    senders, receivers = moves.end_ranks(by_id)
    found = []
    for receiver in range(len(moves.target.ids)):
        for piece in moves.incoming(receiver):
            within = moves.source.box(piece.sender), moves.target.box(receiver)
            read, write = (
                tuple(low - start for low, start in zip(piece.box[::2], box[::2], strict=True))
                for box in within
            )
            ends = senders[piece.sender], receivers[receiver]
            found.append(Box(*ends, read, write, extents(piece.box), piece))
    return found


def listed(rows, source, target):
    """Return the exchange in which every rank sends a whole tile, in each of some rounds, to the
    rank in the round's row, or to none (-1)."""
    senders, receivers = map(list, Exchange(source, target, None, None).end_ranks())
    return _of_pairs(
        (
            (senders.index(rank), receivers.index(other))
            for row in rows
            for rank, other in enumerate(row)
            if other >= 0
        ),
        source,
        target,
    )


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


class Groups(NamedTuple):
    """Who exchanges boxes of one shape with whom, in the order in which boxes lie in the shard of
    their receiver; by rank where the box for the group's i-th member starts (reads[i])."""

    members: list[tuple[int, ...]]
    window: tuple[int, ...]
    reads: np.ndarray


@functools.cache
def groups_of(moves):
    """Return the groups among which everything moves."""
    boxes = boxes_of(moves)
    givers = defaultdict(list)
    for box in boxes:
        givers[box.receiver].append((*box.write, box.sender))
    groups = {taker: [sender for *_, sender in sorted(each)] for taker, each in givers.items()}
    window = tuple(map(max, zip(*(box.shape for box in boxes), strict=True)))
    reads = np.zeros((len(groups[0]), len(moves.ranks), len(window)), np.int32)
    for box in boxes:
        reads[groups[box.sender].index(box.receiver), box.sender] = box.read
    return Groups(sorted(set(map(tuple, groups.values()))), window, reads)


def among_groups(x, moves, axes):
    """Return the windows of a target shard one after the other along their first dimension."""
    me, groups = lax.axis_index(axes), groups_of(moves)
    boxes = [lax.dynamic_slice(x, at(table, me), groups.window) for table in groups.reads]
    return lax.all_to_all(
        jnp.concatenate(boxes), axes, 0, 0, axis_index_groups=groups.members, tiled=True
    )


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
