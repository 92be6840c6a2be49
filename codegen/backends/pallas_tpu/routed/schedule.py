"""Routes on a torus whose devices send directly over a power of two of hops only (v5e).

On a torus whose extents are powers of two, filled axis by axis, a digit of extent 2 is a distance
of 1, 2, 4, ... along one axis, and a ring (`ways.py`) all of an axis that wraps around. A digit of
extent 3 is where its stride is such a distance too: one up, or two down. What is done at a hop is
the same on every device, so that a schedule names no device: it is found once for the offsets that
occur.

    routed    each piece goes from hop to hop until it is where it is wanted
    spread    whole source shards do, copied on the way; receivers take their tiles out of them

A round is what all devices send at a time, over several hops: both ways along an axis, and along
all axes at once, since pieces take turns in which axis they travel first. Of what goes half around
a ring one half goes each way. What has left a place frees it for what comes in a later round, so
that places are few.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from shardwright.codegen.backends.pallas_tpu.routed.turns import WHOLE, Freight, turns
from shardwright.codegen.backends.pallas_tpu.routed.ways import Digits, Hop, Ways, times


class Push(NamedTuple):
    """From a place of the sender to one of the receiver. `number`: the place in which what goes was
    at first; `halves`: which of its halves go."""

    here: int
    there: int
    number: int
    halves: tuple[int, ...] = WHOLE


class Sent(NamedTuple):
    """A hop, and what makes it."""

    hop: Hop
    moves: tuple[Push, ...]


@dataclass(frozen=True)
class Round:
    """What is under way at a time."""

    sends: tuple[Sent, ...]

    @property
    def moves(self) -> tuple[Push, ...]:
        """The moves over all hops, in their order."""
        return tuple(move for sent in self.sends for move in sent.moves)


@dataclass(frozen=True)
class RoutedSchedule:
    """What devices do in which order. `starts`: how many places are filled at first, place n with
    what offset n takes or, if one, with the source shard; `arrives`: the place of what came over
    each of the offsets."""

    offsets: tuple[int, ...]
    rounds: tuple[Round, ...]
    starts: int
    places: int
    arrives: tuple[int, ...]

    @property
    def moves(self) -> tuple[Push, ...]:
        """The moves of all rounds."""
        return tuple(move for each in self.rounds for move in each.moves)

    @property
    def halves(self) -> bool:
        """Whether anything goes in halves."""
        return any(move.halves != WHOLE for move in self.moves)

    def path(self, number: int) -> tuple[tuple[Hop, Push], ...]:
        """Return the hops and moves of what was in a place at first, or of its first half."""
        sends = (sent for each in self.rounds for sent in each.sends)
        pairs = ((hop, move) for hop, moves in sends for move in moves)
        return tuple(pair for pair in pairs if pair[1].number == number and 0 in pair[1].halves)

    @property
    def partners(self) -> tuple[Hop, ...]:
        """To whom a device sends and of whom it gets."""
        hops = {sent.hop for each in self.rounds for sent in each.sends}
        return tuple(sorted(hops | {hop.back for hop in hops}))


def routed(pieces: Sequence[Freight], ways: Ways, least: float = 0.0) -> RoutedSchedule:
    """Return the schedule in which each piece goes its own way; `least`: what a round costs, as so
    much on a link."""
    pieces = sorted(pieces, key=lambda piece: piece.offset)
    at, places, rounds = list(range(len(pieces))), len(pieces), []
    free: list[int] = []
    for _, hops in sorted(turns(pieces, ways, least).items()):
        moving = sorted({number for goes in hops.values() for number in goes})
        more = max(len(moving) - len(free), 0)
        free += range(places, places + more)
        places += more
        landing, free = dict(zip(moving, free, strict=False)), free[len(moving) :]
        sends = (
            Sent(hop, tuple(Push(at[n], landing[n], n, goes[n]) for n in sorted(goes)))
            for hop, goes in sorted(hops.items())
        )
        rounds.append(Round(tuple(sends)))
        free = sorted([*free, *(at[number] for number in moving)])
        for number in moving:
            at[number] = landing[number]
    offsets = tuple(piece.offset for piece in pieces)
    return RoutedSchedule(offsets, tuple(rounds), len(pieces), places, tuple(at))


def spread(offsets: Sequence[int], digits: Digits) -> RoutedSchedule:
    """Return the schedule in which source shards go, copied wherever their ways part."""
    offsets = tuple(sorted(offsets))
    place, rounds = {0: 0}, []
    for turn, ways in _shared_ways(offsets, digits):
        sends = []
        for hop, goals in ways:
            moves = []
            for goal in goals:
                here = goal + turn * hop.by % hop.extent * hop.stride
                there = goal + (turn + 1) * hop.by % hop.extent * hop.stride
                place[there] = len(place)
                moves.append(Push(place[here], place[there], 0))
            sends.append(Sent(hop, tuple(moves)))
        rounds.append(Round(tuple(sends)))
    arrives = tuple(place[offset] for offset in offsets)
    return RoutedSchedule(offsets, tuple(rounds), 1, len(place), arrives)


def _shared_ways(
    offsets: Sequence[int], digits: Digits
) -> Iterator[tuple[int, list[tuple[Hop, list[int]]]]]:
    """Yield every round: how often its hops were made before, and of each the offsets, but for that
    digit, of the shards that make it."""
    for stride, extent in digits:
        ways: dict[int, dict[int, int]] = {}
        for offset in offsets:
            digit = offset // stride % extent
            if digit:
                by, count = times(extent, digit)
                so_far = ways.setdefault(by, {})
                so_far[offset % stride] = max(so_far.get(offset % stride, 0), count)
        for turn in range(max((max(goals.values()) for goals in ways.values()), default=0)):
            left = {
                by: sorted(goal for goal, count in goals.items() if count > turn)
                for by, goals in sorted(ways.items())
            }
            yield turn, [(Hop(stride, extent, by), goals) for by, goals in left.items() if goals]


def fault(schedule: RoutedSchedule, digits: Digits, *, spreads: bool) -> str:
    """Return what is wrong with a schedule, or the empty string: carried out, each offset's
    piece or shard is where it arrives, nothing comes to a place that is in use, and what goes
    was there."""
    starts = [0] if spreads else schedule.offsets
    # What is in each half of each place: the offset that it is for, and how far it has come.
    held = {(n, half): (offset, 0) for n, offset in enumerate(starts) for half in WHOLE}
    for each in schedule.rounds:
        leaves = {(m.here, half) for m in each.moves for half in m.halves}
        kept = held if spreads else {p: v for p, v in held.items() if p not in leaves}
        before, held = held, dict(kept)
        used = {place for place, _ in before}
        for hop, move in ((sent.hop, move) for sent in each.sends for move in sent.moves):
            for half in move.halves:
                taken = move.there in used or (move.there, half) in held
                if (move.here, half) not in before or taken or move.there >= schedule.places:
                    return f"a move from place {move.here} to place {move.there}"
                wanted, gone = before[move.here, half]
                held[move.there, half] = wanted, _added(gone, hop, digits)
    for offset, place in zip(schedule.offsets, schedule.arrives, strict=True):
        expected = (0, offset) if spreads else (offset, offset)
        if any(held.get((place, half)) != expected for half in WHOLE):
            return f"what offset {offset} takes is not in place {place}"
    return ""


def _added(offset: int, hop: Hop, digits: Digits) -> int:
    assert (hop.stride, hop.extent) in digits
    digit = offset // hop.stride % hop.extent
    return offset + ((digit + hop.by) % hop.extent - digit) * hop.stride
