"""Schedules of the forms that forward, made of what modules say: the ways of tiles, or how far
source shards go.
"""

import itertools
import re

from .pallas_steps import Schedule, hop

WHOLE = (0, 1)  # the halves of what goes as a whole
LETTERS = "abcdefghijkmnpqrstuvwxyz"  # not l and o: they look like digits
WAY = re.compile(r"(\d+) (?:(\d+) )?((?:\d+[a-z]+(?:/[a-z]+)?)+)((?: \d+)+)")  # see `of_tiles`
LEG = re.compile(r"(\d+)([a-z]+)/?([a-z]*)")  # a round, a hop, that of the second half


def of_tiles(digits, hops, ways, slot, *, lines=(), shared=False):
    """Return the schedule in which the tile for each offset goes its own way.

    digits, lines: as `Schedule` has them; hops: (stride, extent, by), named a to z without l and o,
    then aa, ab and so on; shared: whether devices differ in what they send over an offset (some
    nothing, or each as much as its tile takes), so that a slot may be for several offsets.

    ways: a row for each offset, ascending, with ";" between: "offset [start] way slots [sizes]".
        start   the slot that the tile is in at first; if left out, the number of the row, from 0
        way     "0a2b": over hop a in round 0, over b in round 2; "0a/b": the first half over a, the
                second over b
        slots   where it comes to, one for each hop
        sizes   how much is sent, along the dimensions of `slot.sized`; if left out, a whole slot
    """
    named = dict(zip(_names(), hops, strict=False))
    made = dict[int, dict[tuple[int, int, int], list[tuple[int, ...]]]]()
    offsets, first, last = list[int](), list[int](), list[int]()
    for number, row in enumerate(map(str.strip, ways.split(";"))):
        offset, start, way, rest = _parts(row)
        legs, numbers = LEG.findall(way), [*map(int, rest.split())]
        if len(numbers) not in (len(legs), len(legs) + len(slot.sized)):
            raise ValueError(f"not a slot for each hop, and sizes or none: {row!r}")
        slots = [int(start or number), *numbers[: len(legs)]]
        offsets.append(int(offset))
        first.append(slots[0])
        last.append(slots[-1])
        gone = [0, 0]
        for (turn, one, other), ends in zip(legs, itertools.pairwise(slots), strict=True):
            over = named[one], named[other or one]
            # Halves of two tiles, which may differ in size, go apart.
            parted = over[0] != over[1] or (shared and gone[0] != gone[1])
            for halves in [(0,), (1,)] if parted else [WHOLE]:
                sent = slot.columns(halves, numbers[len(legs) :])
                move = (*ends, *sent, *[number] * shared)
                made.setdefault(int(turn), {}).setdefault(over[halves[0]], []).append(move)
            gone = [hop(far, *by) for far, by in zip(gone, over, strict=True)]
    every, starts = [made[turn] for turn in sorted(made)], tuple(first) if shared else None
    return _schedule(digits, tuple(offsets), tuple(last), every, starts=starts, lines=lines)


def _parts(row):
    """Return the parts of a row: the offset, the first slot, the way and the numbers."""
    if (found := WAY.fullmatch(row)) is None:
        raise ValueError(f"not a row as `of_tiles` takes it: {row!r}")
    return found.groups()


def of_shards(digits, offsets, orders, slot):
    """Return the schedule in which source shards go, digit by digit, to all devices that are so
    much farther on, copied wherever their ways part.

    digits: as `Schedule` has them; offsets: how much, ascending; orders: the digits in the order in
    which they change; if two, each half of a shard goes by its own.
    """
    slots, every = {0: 0}, []
    halves = [(0,), (1,)] if len(orders) > 1 else [WHOLE]
    ways = [_rounds(offsets, order, first) for first, order in enumerate(orders)]
    for some in itertools.zip_longest(*ways, fillvalue=()):
        made = dict[tuple[int, int, int], list[tuple[int, ...]]]()
        for half, each in zip(halves, some, strict=True):
            for way, base, count in each:
                here, there = (_after(way, base, number) for number in (count, count + 1))
                slots.setdefault(there, len(slots))
                row = slots[here], slots[there], *slot.columns(half)
                made.setdefault(way, []).append(row)
        every.append(made)
    return _schedule(digits, tuple(offsets), tuple(map(slots.__getitem__, offsets)), every)


def _schedule(digits, offsets, arrives, every, **more):
    """Return a schedule; `every`: of each round the rows of the moves over each hop."""
    rounds = tuple(tuple((*way, len(made[way])) for way in sorted(made)) for made in every)
    moves = tuple(row for made in every for way in sorted(made) for row in made[way])
    hops = {way for made in every for way in made}
    back = {(stride, extent, extent - by) for stride, extent, by in hops}
    partners = tuple(sorted(hops | back))
    slots = 1 + max((*arrives, *(slot for here, there, *_ in moves for slot in (here, there))))
    return Schedule(digits, offsets, arrives, rounds, moves, partners, slots, **more)


def _names():
    """Yield the names of hops."""
    for length in itertools.count(1):
        yield from map("".join, itertools.product(LETTERS, repeat=length))


def _rounds(offsets, order, first):
    """Yield of every round its moves: the hop, how far the shard has come in the digits before, and
    how often it has made this hop already. What goes half around a ring goes one way or the other
    in turn; `first`: which way at first."""
    done = list[tuple[int, int]]()
    for stride, extent in order:
        ways = dict[tuple[int, int, int], dict[int, int]]()
        for offset in offsets:
            base = sum(offset // low % size * low for low, size in done)
            if digit := offset // stride % extent:
                by, count = times(extent, digit)
                turn = sum(base // low % size for low, size in done) + first
                if is_ring(extent) and 2 * count == extent and turn % 2:
                    by = extent - by
                so_far = ways.setdefault((stride, extent, by), {})
                so_far[base] = max(so_far.get(base, 0), count)
        counts = [count for bases in ways.values() for count in bases.values()]
        for turn in range(max(counts, default=0)):
            yield [
                (way, base, turn)
                for way, bases in sorted(ways.items())
                for base, count in sorted(bases.items())
                if count > turn
            ]
        done.append((stride, extent))


def _after(way, base, count):
    """Return how far a shard that had come as far as `base` is after so many of these hops."""
    stride, extent, by = way
    return base + count * by % extent * stride


def is_ring(extent):
    """Return whether a digit of an extent is a place on a ring."""
    return extent > 2 and extent.bit_count() == 1


def times(extent, value):
    """Return by how much a digit changes at a hop, and how many such hops change it by a value: the
    fewest; on a ring from neighbour to neighbour."""
    powers = (by for by in range(1, extent) if by.bit_count() == (extent - by).bit_count() == 1)
    steps = (1, extent - 1) if is_ring(extent) else powers
    pairs = ((n, by) for by in steps for n in range(extent) if n * by % extent == value)
    count, by = min(pairs)
    return by, count
