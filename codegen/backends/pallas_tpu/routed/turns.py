"""Choose the route of each piece so that the load on the busiest links is lowest.

A round takes as long as its busiest link, and rounds run in sequence. All devices make the same
hops, but a device without a tile for an offset sends nothing at those hops.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, groupby, permutations

import numpy as np

from shardwright.codegen.backends.pallas_tpu.routed.ways import Hop, Turn, Ways, added
from shardwright.codegen.hardware.topology import Floats

WHOLE = (0, 1)
"""The numbers of both halves, for a piece that is sent whole."""
Going = dict[Turn, dict[Hop, dict[int, tuple[int, ...]]]]
"""The pieces that make each hop in each round, by number, each with the halves that make the
hop."""
Legs = tuple[tuple[Turn, Hop, int], ...]
"""The route of a piece: (turn, hop, half) for each hop of each half."""
MOST_CHOICES = 2048
"""The most combinations of routes for which every order of hops is tried."""
MORE_ROUNDS = 2
"""The most rounds to try beyond the minimum: more rounds cost more than they save."""
PASSES = 6
"""The number of times that each piece's route is reconsidered, given the routes of the others."""


@dataclass(frozen=True)
class Freight:
    """A piece of data that travels over an offset. `size`: its number of elements; `cut`: whether
    its halves can travel separately; `senders`: the devices that send such a piece, empty for all;
    `start`: the fixed cost of a message, as elements on a link."""

    offset: int
    size: int = 1
    cut: bool = False
    senders: tuple[int, ...] = ()
    start: float = 0.0


@dataclass
class _Links:
    """The load that a piece's hops put on links. `known`: a cache of loads."""

    ways: Ways
    known: dict[tuple[object, ...], Floats] = field(default_factory=dict)

    def of(self, piece: Freight, gone: int, hop: Hop) -> Floats:
        """Return each link's load per element of the piece when all senders send it over a hop;
        `gone`: the offset that the piece has already travelled."""
        key = (hop, piece.senders, gone) if piece.senders else (hop,)
        if key not in self.known:
            device = self.ways.devices
            if piece.senders:
                device = added(np.array(piece.senders), gone, self.ways.digits)
            self.known[key] = self.ways.load(hop, device)
        return self.known[key]

    def by_turn(self, piece: Freight, legs: Legs) -> dict[Turn, Floats]:
        """Return the load of each link, by round, for a piece on a route. Halves that travel
        together are one message."""
        found: dict[Turn, Floats] = {}
        gone = [0 for _ in WHOLE]
        for turn, some in groupby(sorted(legs, key=lambda leg: leg[0]), key=lambda leg: leg[0]):
            made = [(gone[half], hop, half) for _, hop, half in some]
            ways = {(so_far, hop) for so_far, hop, _ in made}
            each = piece.size * len(made) / len(ways) / 2 + piece.start
            found[turn] = each * np.sum([self.of(piece, *way) for way in sorted(ways)], axis=0)
            for so_far, hop, half in made:
                gone[half] = int(hop.to(np.array(so_far)))
        return found


@dataclass
class _Load:
    """The load of all pieces placed so far. `carried`: the load of each link, by round; `busiest`:
    the load of the busiest link, by round."""

    carried: dict[Turn, Floats] = field(default_factory=dict)
    busiest: dict[Turn, float] = field(default_factory=lambda: defaultdict(float))

    def rise(self, more: dict[Turn, Floats]) -> tuple[float, float]:
        """Return by how much a piece's load `more` would increase the sum of the busiest links'
        loads and, to break ties, how much of it is on links that are already busy."""
        rises, crowded = 0.0, 0.0
        for turn, load in more.items():
            together = load + self.carried[turn] if turn in self.carried else load
            rises += max(float(together.max()) - self.busiest.get(turn, 0.0), 0.0)
            crowded += float(load @ (together + together - load))
        return round(rises, 6), round(crowded, 6)

    def add(self, more: dict[Turn, Floats], sign: int = 1) -> None:
        for turn, load in more.items():
            self.carried[turn] = self.carried.get(turn, 0 * load) + sign * load
            self.busiest[turn] = float(self.carried[turn].max())


def turns(pieces: Sequence[Freight], ways: Ways, least: float = 0.0) -> Going:
    """Return the hops of all pieces, by round; `least`: the fixed cost of a round, as elements on a
    link.

    Choose the best of three: all pieces traverse the axes in the same order; each piece has its own
    order of axes; or, if pieces are few, each makes its hops in any order and in any rounds.
    """
    orders = ways.orders()
    tried = [
        [tuple(_choices(piece, ways, some)) for piece in pieces] for some in (orders[:1], orders)
    ]
    tried += _in_any_order(pieces, ways)
    links = _Links(ways)
    found = [_shared(pieces, choices, links) for choices in tried]
    _, going = min(found, key=lambda each: each[0] + least * len(each[1]))
    return going


def _in_any_order(pieces: Sequence[Freight], ways: Ways) -> Iterator[list[tuple[Legs, ...]]]:
    """Yield, for each number of rounds from the minimum up, the routes of every piece with its hops
    in any order and round. Yield nothing if the links are unknown, and skip numbers of rounds with
    too many routes."""
    if ways.torus is None:
        return
    usual = [tuple(_choices(piece, ways, ways.orders()[:1])) for piece in pieces]
    hops = [len(legs) // len(WHOLE) for (legs, *_) in usual]
    for rounds in range(max(hops), max(hops) + MORE_ROUNDS + 1):
        counts = (
            len(each) * math.factorial(own) * math.comb(rounds, own) * (1 + piece.cut)
            for piece, each, own in zip(pieces, usual, hops, strict=True)
        )
        if sum(counts) > MOST_CHOICES:
            continue
        for cuts in sorted({False, any(piece.cut for piece in pieces)}):
            yield [
                tuple(dict.fromkeys(way for legs in each for way in _orders(legs, rounds, cut)))
                for cut, each in zip((cuts and piece.cut for piece in pieces), usual, strict=True)
            ]


def _orders(legs: Legs, rounds: int, cut: bool) -> Iterator[Legs]:
    """Yield the routes with a piece's hops in every order and every choice of rounds. Both halves
    travel together; if `cut`, also yield routes on which the second half makes the hops in reverse
    order."""
    pairs = list(zip(*_hops_of(legs), strict=True))
    for times in combinations(range(rounds), len(pairs)):
        turns_of = [(turn, 0) for turn in times]
        for order in permutations(pairs):
            first, second = ([hops[half] for hops in order] for half in WHOLE)
            yield _together(turns_of, first, second)
            if cut:
                yield _together(turns_of, first, second[::-1])


def _hops_of(legs: Legs) -> list[list[Hop]]:
    return [[hop for _, hop, own in legs if own == half] for half in WHOLE]


def _together(times: Sequence[Turn], first: Sequence[Hop], second: Sequence[Hop]) -> Legs:
    """Return the route on which both halves make one hop at each of `times`. `first`, `second`: the
    hops of the first and of the second half."""
    triples = zip(times, first, second, strict=True)
    return tuple((turn, hop, half) for turn, *hops in triples for half, hop in enumerate(hops))


def _shared(
    pieces: Sequence[Freight], choices: Sequence[Sequence[Legs]], links: _Links
) -> tuple[float, Going]:
    """Choose each piece's route. Return the load of the busiest link, summed over rounds, and the
    hops of all pieces by round. Choose greedily, starting with the pieces of largest load; then
    choose again for each piece, several times, given the routes of the others."""
    loads = [
        [links.by_turn(piece, legs) for legs in some]
        for piece, some in zip(pieces, choices, strict=True)
    ]
    work = [sum(float(each.sum()) for each in first.values()) for first, *_ in loads]
    load, at = _Load(), dict[int, int]()
    for number in PASSES * sorted(range(len(pieces)), key=lambda number: -work[number]):
        if number in at:
            load.add(loads[number][at[number]], -1)
        rises = [load.rise(more) for more in loads[number]]
        at[number] = rises.index(min(rises))
        load.add(loads[number][at[number]])
    going = Going()
    for number, choice in at.items():
        for turn, hop, half in choices[number][choice]:
            goes = going.setdefault(turn, {}).setdefault(hop, {})
            goes[number] = (*goes.get(number, ()), half)
    return sum(load.busiest.values()), going


def _choices(piece: Freight, ways: Ways, orders: Sequence[tuple[int, ...]]) -> Iterator[Legs]:
    """Yield the routes of a piece: one for each order of axes and each direction of half turns
    around a ring. If the piece can be cut, its halves make half turns in opposite directions, and
    an additional route has one half in the first order of axes and the other in the last."""
    for order in orders:
        signs: tuple[tuple[int, int], ...] = ((1, 1),)
        if ways.halved(piece.offset):
            signs = ((1, -1),) if piece.cut else ((1, 1), (-1, -1))
        for pair in signs:
            yield tuple(
                (turn, hop, half)
                for half, sign in zip(WHOLE, pair, strict=True)
                for turn, hop in ways.way(piece.offset, order, sign)
            )
    if piece.cut and len(orders) > 1:
        one, other = (
            [(turn, hop) for turn, hop in ways.way(piece.offset, order, sign)]
            for order, sign in ((orders[0], 1), (orders[-1], -1))
        )
        yield _together(
            [turn for turn, _ in one], [hop for _, hop in one], [hop for _, hop in other]
        )
