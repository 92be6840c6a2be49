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
a ring one half goes each way. A device that has nothing to go over an offset sends nothing at its
hops. What has left a place frees it for what comes in a later round, and offsets share places where
no device has both, so that places are few.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, zip_longest
from typing import NamedTuple

import numpy as np

from shardwright.codegen.backends.pallas_tpu.routed.turns import WHOLE, Freight, turns
from shardwright.codegen.backends.pallas_tpu.routed.ways import (
    Digits,
    Hop,
    Ways,
    added,
    is_ring,
    times,
)
from shardwright.ir.algebra.index import Integers


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
    """What devices do in which order. `starts`: the places that are filled at first, place
    starts[n] with what offset n takes or, if one, with the source shard; `arrives`: the place of
    what came over each of the offsets; `senders`: of each offset the devices that have something to
    send over it, nothing if all have over all. What no device holds at a time with something
    else may be in one place with it. `orders`: those of digits by which source shards go."""

    offsets: tuple[int, ...]
    rounds: tuple[Round, ...]
    starts: tuple[int, ...]
    places: int
    arrives: tuple[int, ...]
    senders: tuple[tuple[int, ...], ...] = ()
    orders: tuple[Digits, ...] = ()

    @property
    def moves(self) -> tuple[Push, ...]:
        """The moves of all rounds."""
        return tuple(move for each in self.rounds for move in each.moves)

    @property
    def is_shared(self) -> bool:
        """Whether some devices have nothing to send over some offsets."""
        return any(self.senders)

    @property
    def halves(self) -> bool:
        """Whether anything goes in halves."""
        return any(move.halves != WHOLE for move in self.moves)

    def made(self, digits: Digits) -> Iterator[tuple[int, Hop, Push, Integers]]:
        """Yield every move, in order, with the number of its round, its hop, and the devices that
        have something to move."""
        everywhere = Ways.on_one_axis(digits).devices
        gone: dict[tuple[int, int], int] = {}
        for turn, each in enumerate(self.rounds):
            for hop, move in ((sent.hop, move) for sent in each.sends for move in sent.moves):
                so_far = gone.get((move.number, move.halves[0]), 0)
                devices = everywhere
                if self.senders:
                    devices = added(np.array(self.senders[move.number]), so_far, digits)
                yield turn, hop, move, devices
                for half in move.halves:
                    gone[move.number, half] = int(hop.to(np.array(so_far)))

    def mixes(self) -> bool:
        """Return whether both halves of a move are of different senders' pieces."""
        gone: dict[tuple[int, int], int] = {}
        for sent in (sent for each in self.rounds for sent in each.sends):
            for move in sent.moves:
                far = [gone.get((move.number, half), 0) for half in move.halves]
                if len({*far}) > 1:
                    return True
                gone |= {
                    (move.number, half): int(sent.hop.to(np.array(so_far)))
                    for half, so_far in zip(move.halves, far, strict=True)
                }
        return False

    def path(self, number: int, half: int = 0) -> tuple[tuple[Hop, Push], ...]:
        """Return the hops and moves of a half of what was in a place at first."""
        sends = (sent for each in self.rounds for sent in each.sends)
        pairs = ((hop, move) for hop, moves in sends for move in moves)
        return tuple(pair for pair in pairs if pair[1].number == number and half in pair[1].halves)

    @property
    def hops(self) -> tuple[Hop, ...]:
        """The hops that are made."""
        return tuple(sorted({sent.hop for each in self.rounds for sent in each.sends}))

    @property
    def partners(self) -> tuple[Hop, ...]:
        """To whom a device sends and of whom it gets."""
        return tuple(sorted({*self.hops, *(hop.back for hop in self.hops)}))


def routed(
    pieces: Sequence[Freight], ways: Ways, least: float = 0.0, *, apart: bool = False
) -> RoutedSchedule:
    """Return the schedule in which each piece goes its own way; `least`: what a round costs, as so
    much on a link; `apart`: whether places of what has not left yet, the first, and of what has
    arrived, the next, are never used for anything else."""
    pieces = sorted(pieces, key=lambda piece: piece.offset)
    places, everywhere = _Places(), frozenset(ways.devices.tolist())
    # Where each piece is: the place, and of each half the devices; on others each goes alone.
    held = [frozenset(piece.senders) or everywhere for piece in pieces]
    at = [places.take(everywhere if apart else devices) for devices in held]
    ends = [places.take(everywhere) for _ in pieces] if apart else []
    halves, starts, rounds = [[each, each] for each in held], tuple(at), []
    gone = [[0, 0] for _ in pieces]
    made = sorted(turns(pieces, ways, least).items())
    last = {n: turn for turn, hops in made for goes in hops.values() for n in goes}
    for turn, hops in made:
        before = [a | b for a, b in halves]
        # Halves of two tiles, of which one may not be there.
        pairs = zip(pieces, gone, strict=True)
        parted = [bool(piece.senders) and far[0] != far[1] for piece, far in pairs]
        for hop, goes in hops.items():
            for number, half in ((n, half) for n, some in goes.items() for half in some):
                devices = np.array(sorted(halves[number][half]))
                halves[number][half] = frozenset(hop.to(devices).tolist())
                gone[number][half] = int(hop.to(np.array(gone[number][half])))
        moving = sorted({number for goes in hops.values() for number in goes})
        landing = {
            n: ends[n] if ends and last[n] == turn else places.take(frozenset.union(*halves[n]))
            for n in moving
        }
        sends = (
            Sent(
                hop,
                tuple(
                    Push(at[n], landing[n], n, some)
                    for n in sorted(goes)
                    for some in (zip(goes[n]) if parted[n] else (goes[n],))
                ),
            )
            for hop, goes in sorted(hops.items())
        )
        rounds.append(Round(tuple(sends)))
        for number in moving:
            if not ends or at[number] != starts[number]:
                places.leave(at[number], before[number])
            at[number] = landing[number]
    offsets = tuple(piece.offset for piece in pieces)
    senders = tuple(piece.senders for piece in pieces) if any(p.senders for p in pieces) else ()
    return RoutedSchedule(offsets, tuple(rounds), starts, len(places.used), tuple(at), senders)


@dataclass
class _Places:
    """The devices on which each place is in use."""

    used: list[set[int]] = field(default_factory=list)

    def take(self, devices: frozenset[int]) -> int:
        """Return the first place that is free on some devices, and use it there."""
        free = (place for place, used in enumerate(self.used) if used.isdisjoint(devices))
        place = next(free, len(self.used))
        if place == len(self.used):
            self.used.append(set())
        self.used[place] |= devices
        return place

    def leave(self, place: int, devices: frozenset[int]) -> None:
        """Make a place free on some devices."""
        self.used[place] -= devices


def spread(offsets: Sequence[int], *orders: Digits) -> RoutedSchedule:
    """Return the schedule in which source shards go, copied wherever their ways part, digit by
    digit; of two orders of digits each is that of a half."""
    offsets, place, rounds = tuple(sorted(offsets)), {0: 0}, []
    halves = [(half,) for half in WHOLE] if len(orders) > 1 else [WHOLE]
    ways = [_shared_ways(offsets, order, first) for first, order in enumerate(orders)]
    for some in zip_longest(*ways, fillvalue=()):
        sends: dict[Hop, list[Push]] = {}
        for half, made in zip(halves, some, strict=True):
            for hop, pairs in made:
                for here, there in pairs:
                    place.setdefault(there, len(place))
                    sends.setdefault(hop, []).append(Push(place[here], place[there], 0, half))
        rounds.append(Round(tuple(Sent(hop, tuple(sends[hop])) for hop in sorted(sends))))
    arrives = tuple(place[offset] for offset in offsets)
    return RoutedSchedule(offsets, tuple(rounds), (0,), len(place), arrives, orders=orders)


Pairs = list[tuple[int, int]]
"""How far shards have come before a hop, and after it."""


def _shared_ways(
    offsets: Sequence[int], digits: Digits, first: int
) -> Iterator[list[tuple[Hop, Pairs]]]:
    """Yield every round: its hops, and which shards make each. What goes half around a ring goes
    one way or the other in turn; `first`: which way at first."""
    done: list[tuple[int, int]] = []
    for stride, extent in digits:
        ways: dict[int, dict[int, int]] = {}
        for offset in offsets:
            goal = sum(offset // low % size * low for low, size in done)
            digit = offset // stride % extent
            if digit:
                by, count = times(extent, digit)
                if is_ring(extent) and 2 * count == extent and sum(_digits(goal, done), first) % 2:
                    by = extent - by
                so_far = ways.setdefault(by, {})
                so_far[goal] = max(so_far.get(goal, 0), count)
        for turn in range(max((max(goals.values()) for goals in ways.values()), default=0)):
            left = (
                (Hop(stride, extent, by), sorted(goal for goal in goals if goals[goal] > turn))
                for by, goals in sorted(ways.items())
            )
            yield [
                (hop, [(_after(hop, goal, turn), _after(hop, goal, turn + 1)) for goal in goals])
                for hop, goals in left
                if goals
            ]
        done.append((stride, extent))


def _digits(number: int, digits: Sequence[tuple[int, int]]) -> Iterator[int]:
    return (number // stride % extent for stride, extent in digits)


def _after(hop: Hop, offset: int, count: int) -> int:
    """Return how far a shard has come after this many hops, without that digit."""
    return offset + count * hop.by % hop.extent * hop.stride


def busiest(schedule: RoutedSchedule, ways: Ways) -> float:
    """Return what the busiest links of all rounds carry of shards of size one, in a schedule in
    which every device makes all moves."""
    hops = {sent.hop for each in schedule.rounds for sent in each.sends}
    loads = {hop: ways.load(hop, ways.devices) for hop in hops}
    carried = (
        sum(loads[sent.hop] * sum(len(move.halves) for move in sent.moves) for sent in each.sends)
        for each in schedule.rounds
    )
    return sum(float(np.max(load)) for load in carried) / len(WHOLE)


def fault(schedule: RoutedSchedule, digits: Digits, *, spreads: bool) -> str:
    """Return what is wrong with a schedule, or the empty string: carried out, each offset's
    piece or shard is where it arrives, nothing comes to a place that is in use, and what goes
    was there."""
    everywhere = Ways.on_one_axis(digits).devices
    if max(schedule.starts) >= schedule.places:
        return f"place {max(schedule.starts)} of {schedule.places}"
    held = _Contents(schedule, everywhere.size)
    for number, place in enumerate(schedule.starts):
        senders = schedule.senders[number] if schedule.senders else everywhere
        held.fill(place, np.array(senders), number)
    made = list(schedule.made(digits))
    for _, some in groupby(made, key=lambda each: each[0]):
        wrong = held.moved([each[1:] for each in some], spreads=spreads)
        if wrong:
            return wrong
    for number, (offset, place) in enumerate(zip(schedule.offsets, schedule.arrives, strict=True)):
        senders = np.array(schedule.senders[number] if schedule.senders else everywhere)
        if not held.has(place, added(senders, offset, digits), 0 if spreads else number, senders):
            return f"what offset {offset} takes is not in place {place}"
    return ""


class _Contents:
    """The number of what each half of each place of each device holds, and the device whose it was
    at first; -1 for nothing."""

    def __init__(self, schedule: RoutedSchedule, devices: int) -> None:
        self.places = schedule.places
        self.number = np.full((schedule.places + 1, len(WHOLE), devices), -1)
        self.origin = self.number.copy()

    def fill(self, place: int, devices: Integers, number: int) -> None:
        """Put what is somewhere at first there."""
        self.number[place, :, devices], self.origin[place][:, devices] = number, devices

    def has(self, place: int, devices: Integers, number: int, origin: Integers) -> bool:
        """Return whether both halves of a place hold what a number says, of these devices."""
        right = (self.number[place][:, devices] == number) & (
            self.origin[place][:, devices] == origin
        )
        return bool(right.all())

    def moved(self, moves: list[tuple[Hop, Push, Integers]], *, spreads: bool) -> str:
        """Make the moves of a round; return what is wrong with one."""
        before, origins = self.number.copy(), self.origin.copy()
        if not spreads:
            for _, move, devices in moves:
                for half in move.halves:
                    self.number[move.here, half, devices] = -1
        for hop, move, devices in moves:
            to = hop.to(devices)
            for half in move.halves:
                there = before[move.there][:, to], origins[move.there][:, to]
                other = (there[0] != move.number) | (there[1] != origins[move.here, half, devices])
                full = (other & (there[0] >= 0)).any() or move.there >= self.places
                taken = (np.array((before, self.number))[:, move.there, half, to] >= 0).any()
                if full or taken or (before[move.here, half, devices] != move.number).any():
                    return f"a move from place {move.here} to place {move.there}"
                self.number[move.there, half, to] = move.number
                self.origin[move.there, half, to] = origins[move.here, half, devices]
        return ""
