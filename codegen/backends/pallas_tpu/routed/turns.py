"""Which piece travels when: the order of axes of each, so that the busiest links carry least.

Links of different hops of a round are taken for different ones: they are along other axes, or the
other way. So a round takes as long as its busiest hop, and rounds follow one another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from shardwright.codegen.backends.pallas_tpu.routed.ways import Hop, Turn, Ways

WHOLE = (0, 1)
"""The halves of what goes as a whole."""
Going = dict[Turn, dict[Hop, dict[int, tuple[int, ...]]]]
"""Of every round the hops, and the halves of the pieces, by number, that make them."""
Legs = tuple[tuple[Turn, Hop, int], ...]
"""The hops of a piece, when, and of which of its halves."""


@dataclass(frozen=True)
class Freight:
    """A piece: its offset, what links carry of it, and whether that can be cut into halves."""

    offset: int
    size: int = 1
    cut: bool = False


@dataclass
class _Load:
    """What every hop of every round carries, times the links that it crosses."""

    ways: Ways
    carried: dict[tuple[Turn, Hop], float] = field(default_factory=lambda: defaultdict(float))
    busiest: dict[Turn, float] = field(default_factory=lambda: defaultdict(float))

    def with_more(self, piece: Freight, legs: Legs) -> dict[tuple[Turn, Hop], float]:
        """Return what the hops of a piece carry with it."""
        found: dict[tuple[Turn, Hop], float] = {}
        for turn, hop, _ in legs:
            so_far = found.get((turn, hop), self.carried.get((turn, hop), 0.0))
            found[turn, hop] = so_far + piece.size / 2 * self.ways.links(hop)
        return found

    def rise(self, piece: Freight, legs: Legs) -> float:
        """Return by how much all rounds together take longer with a piece."""
        most: dict[Turn, float] = defaultdict(float)
        for (turn, _), carried in self.with_more(piece, legs).items():
            most[turn] = max(most[turn], carried - self.busiest.get(turn, 0.0))
        return sum(most.values())

    def add(self, piece: Freight, legs: Legs) -> None:
        """Let a piece travel."""
        for (turn, hop), carried in self.with_more(piece, legs).items():
            self.carried[turn, hop] = carried
            self.busiest[turn] = max(self.busiest[turn], carried)


def turns(pieces: Sequence[Freight], ways: Ways, least: float = 0.0) -> Going:
    """Return who goes when over which hop; `least`: what a round takes, as so much on a link.

    Either all pieces travel the axes in one order, or they share the orders among them.
    """
    orders = ways.orders()
    found = [_shared(pieces, ways, some) for some in (orders[:1], orders)]
    _, going = min(found, key=lambda each: each[0] + least * len(each[1]))
    return going


def _shared(
    pieces: Sequence[Freight], ways: Ways, orders: Sequence[tuple[int, ...]]
) -> tuple[float, Going]:
    """Return how much the busiest hops of all rounds carry, and who goes when: one after another,
    those that load links most before others, where all takes least longer."""
    load, going = _Load(ways), Going()
    choices = [tuple(_choices(piece, ways, orders)) for piece in pieces]
    work = [_work(piece, legs, ways) for piece, (legs, *_) in zip(pieces, choices, strict=True)]
    for number in sorted(range(len(pieces)), key=lambda number: -work[number]):
        piece = pieces[number]
        legs = min(choices[number], key=lambda legs: load.rise(piece, legs))
        load.add(piece, legs)
        for turn, hop, half in legs:
            goes = going.setdefault(turn, {}).setdefault(hop, {})
            goes[number] = (*goes.get(number, ()), half)
    return sum(load.busiest.values()), going


def _work(piece: Freight, legs: Legs, ways: Ways) -> int:
    """Return what all links carry of a piece."""
    return piece.size * sum(ways.links(hop) for _, hop, _ in legs)


def _choices(piece: Freight, ways: Ways, orders: Sequence[tuple[int, ...]]) -> Iterator[Legs]:
    """Yield the ways that a piece can go: of its halves, where what half around a ring is both ways
    can be cut, one either way."""
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
