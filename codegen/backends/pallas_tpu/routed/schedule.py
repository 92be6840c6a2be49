"""Schedules of hops on a torus whose devices send directly only over a power of two of links (v5e).

A place in the torus is a number with digits. If the torus's extents are powers of two, and devices
are numbered axis by axis, a step along a digit of extent 2 is a distance of 1, 2, 4, ... along one
axis; a ring (`ways.py`) is a whole axis that wraps around. A digit of extent 3 also works if its
stride is such a distance: a step is one up, or two down. All devices make the same hops, so one
schedule holds for all: it is computed once, from the offsets between senders and receivers.

    routed    each piece travels hop by hop to its destination
    spread    whole source shards travel, copied on the way; receivers extract their tiles

A round is a set of simultaneous sends over several hops, in both directions of an axis and along
all axes, since pieces travel the axes in different orders. Data that travels half around a ring is
split over both directions. A device without data for an offset sends nothing at its hops. A place
is free again after its data is sent. Offsets that never occur on the same device share places.
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
    """A copy from place `here` of the sender to place `there` of the receiver. `number`: the index
    of the data in `starts` of the schedule; `halves`: the halves to copy."""

    here: int
    there: int
    number: int
    halves: tuple[int, ...] = WHOLE


class Sent(NamedTuple):
    """A hop, and the copies that devices make over it."""

    hop: Hop
    moves: tuple[Push, ...]


@dataclass(frozen=True)
class Round:
    """The simultaneous sends of a round, over all its hops."""

    sends: tuple[Sent, ...]

    @property
    def moves(self) -> tuple[Push, ...]:
        return tuple(move for sent in self.sends for move in sent.moves)


@dataclass(frozen=True)
class RoutedSchedule:
    """The moves of all devices, round by round.

    `offsets`: the offsets between senders and receivers, in ascending order; `starts`: the places
    filled at first, one per offset, or a single one for the source shard; `places`: the number of
    places; `arrives`: the place into which the data for each offset arrives; `senders`: the devices
    that have data for each offset, empty if all devices have data for all; `orders`: the digit
    orders in which source shards travel. Data that are never on the same device may share a
    place.
    """

    offsets: tuple[int, ...]
    rounds: tuple[Round, ...]
    starts: tuple[int, ...]
    places: int
    arrives: tuple[int, ...]
    senders: tuple[tuple[int, ...], ...] = ()
    orders: tuple[Digits, ...] = ()

    @property
    def moves(self) -> tuple[Push, ...]:
        return tuple(move for each in self.rounds for move in each.moves)

    @property
    def is_shared(self) -> bool:
        """Whether some devices have no data for some offsets."""
        return any(self.senders)

    @property
    def halves(self) -> bool:
        """Whether any move copies only one half."""
        return any(move.halves != WHOLE for move in self.moves)

    def made(self, digits: Digits) -> Iterator[tuple[int, Hop, Push, Integers]]:
        """Yield every move in order: its round, its hop, the move itself, and the devices that have
        the data to copy."""
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
        """Return whether any move copies two halves that come from different senders."""
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
        """Return the hops and moves, in order, of one half of the data that is in `starts[number]`
        at first."""
        sends = (sent for each in self.rounds for sent in each.sends)
        pairs = ((hop, move) for hop, moves in sends for move in moves)
        return tuple(pair for pair in pairs if pair[1].number == number and half in pair[1].halves)

    @property
    def hops(self) -> tuple[Hop, ...]:
        """The hops that occur in any round, sorted."""
        return tuple(sorted({sent.hop for each in self.rounds for sent in each.sends}))

    @property
    def partners(self) -> tuple[Hop, ...]:
        """The hops to the devices with which a device communicates, sorted."""
        return tuple(sorted({*self.hops, *(hop.back for hop in self.hops)}))


def routed(
    pieces: Sequence[Freight], ways: Ways, least: float = 0.0, *, apart: bool = False
) -> RoutedSchedule:
    """Return the schedule in which each piece travels separately; `least`: the fixed cost of a
    round, as elements on a link; `apart`: whether the first and last places of each piece are
    reserved for it."""
    pieces = sorted(pieces, key=lambda piece: piece.offset)
    places, everywhere = _Places(), frozenset(ways.devices.tolist())
    # Where each piece is: its place, and the devices that have each of its halves.
    held = [frozenset(piece.senders) or everywhere for piece in pieces]
    at = [places.take(everywhere if apart else devices) for devices in held]
    ends = [places.take(everywhere) for _ in pieces] if apart else []
    halves, starts, rounds = [[each, each] for each in held], tuple(at), []
    gone = [[0, 0] for _ in pieces]
    made = sorted(turns(pieces, ways, least).items())
    last = {n: turn for turn, hops in made for goes in hops.values() for n in goes}
    for turn, hops in made:
        before = [a | b for a, b in halves]
        # If the halves have travelled separately, a device may have only one of them: move it
        # alone.
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
    """The places in use. `used`: the devices on which each place is in use."""

    used: list[set[int]] = field(default_factory=list)

    def take(self, devices: frozenset[int]) -> int:
        free = (place for place, used in enumerate(self.used) if used.isdisjoint(devices))
        place = next(free, len(self.used))
        if place == len(self.used):
            self.used.append(set())
        self.used[place] |= devices
        return place

    def leave(self, place: int, devices: frozenset[int]) -> None:
        self.used[place] -= devices


def spread(offsets: Sequence[int], *orders: Digits) -> RoutedSchedule:
    """Return the schedule of whole source shards. They travel digit by digit and are copied where
    their routes diverge. If two digit orders are given, each half of a shard uses one."""
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
"""The offsets that each shard at a hop has travelled before and after it."""


def _shared_ways(
    offsets: Sequence[int], digits: Digits, first: int
) -> Iterator[list[tuple[Hop, Pairs]]]:
    """Yield the hops of every round, each with the shards that make it. Shards that travel half way
    around a ring alternate between its directions; `first`: the first direction."""
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
    """Return the offset that a shard has travelled after `count` equal hops; `offset`: the offset
    before the first."""
    return offset + count * hop.by % hop.extent * hop.stride


def busiest(schedule: RoutedSchedule, ways: Ways) -> float:
    """Return the load on the busiest link of each round, summed over rounds, for shards of size 1.
    Every device must make all moves of the schedule."""
    hops = {sent.hop for each in schedule.rounds for sent in each.sends}
    loads = {hop: ways.load(hop, ways.devices) for hop in hops}
    carried = (
        sum(loads[sent.hop] * sum(len(move.halves) for move in sent.moves) for sent in each.sends)
        for each in schedule.rounds
    )
    return sum(float(np.max(load)) for load in carried) / len(WHOLE)


def fault(schedule: RoutedSchedule, digits: Digits, *, spreads: bool) -> str:
    """Simulate a schedule and return a description of its first fault, or "" if it has none. Each
    offset's piece or shard must arrive, no place in use may be overwritten, and all data to move
    must exist; `spreads`: whether shards stay in place when copied on."""
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
    """The simulated contents of places. `number`: the piece in each half of each place of each
    device; `origin`: the device on which that piece started; both -1 if there is none."""

    def __init__(self, schedule: RoutedSchedule, devices: int) -> None:
        self.places = schedule.places
        self.number = np.full((schedule.places + 1, len(WHOLE), devices), -1)
        self.origin = self.number.copy()

    def fill(self, place: int, devices: Integers, number: int) -> None:
        self.number[place, :, devices], self.origin[place][:, devices] = number, devices

    def has(self, place: int, devices: Integers, number: int, origin: Integers) -> bool:
        right = (self.number[place][:, devices] == number) & (
            self.origin[place][:, devices] == origin
        )
        return bool(right.all())

    def moved(self, moves: list[tuple[Hop, Push, Integers]], *, spreads: bool) -> str:
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
