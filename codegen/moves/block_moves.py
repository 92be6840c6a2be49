"""Direct exchanges: each device receives exactly the blocks of its new shard that it lacks, from
devices that have them.

The old and the new shard are cut into blocks of one shape, whose extents are the greatest common
divisors of the shards' extents. If every device has one block for every device, all blocks travel
in one all-to-all. Otherwise they travel in rounds of permutes, in which every device sends and
receives at most one block.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shardwright.codegen.moves.basis.permutes import permuted
from shardwright.codegen.moves.move import LayoutMove
from shardwright.codegen.moves.network.collectives import Pairs
from shardwright.codegen.ops.layout import LocalLayout, Names
from shardwright.ir.colouring import colouring

MOST_DEVICES = 16
"""The most devices in a group. It is limited because a module lists the blocks of each device."""
MOST_ROUNDS = 8

Sizes = tuple[tuple[str, int], ...]
Place = tuple[int, ...]
Needed = tuple[int, list[int], int]  # receiver, devices with a block, its number in their shards


@dataclass(frozen=True)
class MoveBlocks:
    """The blocks of an exchange between two layouts, over the axes in which the layouts differ.

    `splits`: before and after, the axes that split each dimension, except the leading axes that
    both layouts share; `cuts`: before and after, the number of blocks in a shard along each
    dimension; `block`: the shape of a block.
    """

    axes: Names
    splits: tuple[tuple[Names, ...], tuple[Names, ...]]
    cuts: tuple[Place, Place]
    block: Place
    sizes: Sizes

    @staticmethod
    def of(source: LocalLayout, target: LocalLayout, shape: Place, sizes: Sizes) -> MoveBlocks:
        """Return the blocks of an exchange between two layouts of a tensor of this shape. `sizes`:
        the size of every axis, in mesh order."""
        known = dict(sizes)
        starts = tuple(map(_common, source.dims, target.dims))
        ends = tuple(
            tuple(names[len(start) :] for names, start in zip(layout.dims, starts, strict=True))
            for layout in (source, target)
        )
        shards = tuple(layout.local(shape, known) for layout in (source, target))
        block = tuple(map(math.gcd, *shards))
        cuts = tuple(tuple(map(int.__floordiv__, shard, block)) for shard in shards)
        used = {name for side in ends for names in side for name in names}
        axes = tuple(name for name, _ in sizes if name in used)
        return MoveBlocks(axes, (ends[0], ends[1]), (cuts[0], cuts[1]), block, sizes)

    @property
    def devices(self) -> int:
        return math.prod(size for name, size in self.sizes if name in self.axes)

    @property
    def is_at_once(self) -> bool:
        """Whether every device has one block for every device, so that one all-to-all suffices."""
        known = dict(self.sizes)
        holders = math.prod(known[name] for names in self.splits[0] for name in names)
        aligned = all(1 in pair for pair in zip(*self.cuts, strict=True))
        return aligned and holders == math.prod(self.cuts[1]) == self.devices


@dataclass(frozen=True)
class DirectMove:
    """A direct exchange. Devices are numbered along the axes of `blocks`.

    `sent`: for each round, the number of the block that each device sends, and the (sender,
    receiver) pairs; for an all-to-all, the numbers of the blocks that each device sends, by
    receiver, without pairs. `placed`: for each device, the blocks of its new shard in order. They
    are numbered among the blocks of its old shard followed by the received blocks; for an
    all-to-all, among the received blocks alone.
    """

    blocks: MoveBlocks
    sent: tuple[tuple[Place, Pairs], ...]
    placed: tuple[Place, ...]


@functools.lru_cache(maxsize=1024)
def direct(source: LocalLayout, target: LocalLayout, shape: Place, sizes: Sizes) -> DirectMove:
    """Return the direct exchange between two layouts of a tensor of this shape.

    >>> rows, columns = LocalLayout((("x",), ())), LocalLayout(((), ("x",)))
    >>> direct(rows, columns, (4, 4), (("x", 2),)).placed
    ((0, 1), (0, 1))
    """
    blocks = MoveBlocks.of(source, target, shape, sizes)
    found = list(_needed(blocks))
    return _at_once(blocks, found) if blocks.is_at_once else _in_rounds(blocks, found)


def _at_once(blocks: MoveBlocks, found: Sequence[Needed]) -> DirectMove:
    sent = [[0] * blocks.devices for _ in range(blocks.devices)]
    placed = [list[int]() for _ in range(blocks.devices)]
    for receiver, (sender,), block in found:
        sent[sender][receiver] = block
        placed[receiver].append(sender)
    return DirectMove(blocks, tuple((tuple(row), ()) for row in sent), tuple(map(tuple, placed)))


def _in_rounds(blocks: MoveBlocks, found: Sequence[Needed]) -> DirectMove:
    senders = _senders(found, blocks.devices)
    ends = np.array([senders, [receiver for receiver, *_ in found]])
    away = np.flatnonzero(ends[0] != ends[1])
    count = int(max(np.bincount(end[away]).max() for end in ends))
    turns = np.full(len(found), -1)
    senders_away, receivers = ends[:, away]
    turns[away] = colouring(senders_away, receivers, np.ones(away.size, dtype=np.int64), count)
    sent = [([0] * blocks.devices, list[tuple[int, int]]()) for _ in range(count)]
    placed = [list[int]() for _ in range(blocks.devices)]
    own = math.prod(blocks.cuts[0])
    for (receiver, _, block), sender, turn in zip(found, senders, turns.tolist(), strict=True):
        placed[receiver].append(block if turn < 0 else own + turn)
        if turn >= 0:
            starts, pairs = sent[turn]
            starts[sender] = block
            pairs.append((sender, receiver))
    return DirectMove(
        blocks,
        tuple((tuple(starts), tuple(sorted(pairs))) for starts, pairs in sent),
        tuple(map(tuple, placed)),
    )


def rounds_of(
    move: LayoutMove, source: LocalLayout, shape: Place, sizes: Sizes
) -> tuple[Pairs, ...]:
    """Return the (sender, receiver) pairs of each permute of a move, flattened positions along its
    axes; () for other collectives. `shape`: the shape of the tensor."""
    if move.op == "permute":
        return (permutation(move.axes, sizes, source, move.after),)
    if not move.rounds:
        return ()
    return tuple(pairs for _, pairs in direct(source, move.after, shape, sizes).sent)


@functools.lru_cache(maxsize=1024)
def permutation(axes: Names, sizes: Sizes, source: LocalLayout, target: LocalLayout) -> Pairs:
    """Return (sender, receiver) pairs of positions along `axes`, flattened: each device sends its
    shard to one device that needs it, to itself if possible."""
    known = dict(sizes)
    devices = _devices(axes, known)
    have, want = ([_shard(each.dims, at, known) for at in devices] for each in (source, target))
    return tuple(sorted(permuted(have, want), key=lambda pair: pair[1]))


def _devices(axes: Names, sizes: Mapping[str, int]) -> list[dict[str, int]]:
    places = itertools.product(*(range(sizes[name]) for name in axes))
    return [dict(zip(axes, place, strict=True)) for place in places]


def _common(one: Names, other: Names) -> Names:
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return tuple(name for name, _ in pairs)


def _needed(blocks: MoveBlocks) -> Iterator[Needed]:
    sizes = dict(blocks.sizes)
    devices = _devices(blocks.axes, sizes)
    holders: dict[Place, list[int]] = {}
    for number, at in enumerate(devices):
        holders.setdefault(_shard(blocks.splits[0], at, sizes), []).append(number)
    old, new = blocks.cuts
    for receiver, at in enumerate(devices):
        starts = [
            index * cut for index, cut in zip(_shard(blocks.splits[1], at, sizes), new, strict=True)
        ]
        for inner in itertools.product(*map(range, new)):
            place = [start + own for start, own in zip(starts, inner, strict=True)]
            shard = tuple(index // cut for index, cut in zip(place, old, strict=True))
            number = 0
            for index, cut in zip(place, old, strict=True):
                number = number * cut + index % cut
            yield receiver, holders[shard], number


def _shard(splits: Sequence[Names], at: Mapping[str, int], sizes: Mapping[str, int]) -> Place:
    found = []
    for names in splits:
        number = 0
        for name in names:
            number = number * sizes[name] + at[name]
        found.append(number)
    return tuple(found)


def _senders(found: Sequence[Needed], devices: int) -> list[int]:
    """Return the sender of each block: the receiver itself if it has the block; otherwise, of the
    devices that have it, the one that has sent the fewest blocks so far or, in a tie, the nearest
    one before the receiver."""
    load = [0] * devices
    senders = []
    for receiver, holders, _ in found:
        turns = ((load[each], (receiver - each) % devices, each) for each in holders)
        sender = receiver if receiver in holders else min(turns)[-1]
        load[sender] += sender != receiver
        senders.append(sender)
    return senders
