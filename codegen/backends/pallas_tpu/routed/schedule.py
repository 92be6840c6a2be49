"""Routes on a torus whose devices send directly over a power of two of hops only (v5e).

Devices are numbered, and a number is written in digits, the twos minor:

    offset    what takes a sender to a receiver, digit by digit modulo the digit's extent
    hop       one digit of the number changes: every device sends to the one so much farther on

On a torus whose extents are powers of two, filled axis by axis, a digit of extent 2 is a distance
of 1, 2, 4, ... along one axis. A digit of extent 3 is where its stride
is such a distance too: one up, or two down. What is done at a hop is the same on every device, so
that a schedule names no device: it is found once for the offsets that occur.

    routed    each piece goes from hop to hop until it is where it is wanted
    spread    whole source shards do, copied on the way; receivers take their tiles out of them

A round is one hop that all devices make at a time. What has left a place frees it for what comes
in a later round, so that places are few.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from shardwright.codegen.planner.basis.digits import primes
from shardwright.ir.algebra.index import Integers

Digits = tuple[tuple[int, int], ...]
"""(stride, extent) of every digit of a number, minor first."""


def digits_of(devices: int) -> Digits:
    """Return the digits of the numbers below a count, of prime extents.

    >>> digits_of(12)
    ((1, 2), (2, 2), (4, 3))
    """
    found, stride = [], 1
    for extent in primes(devices):
        found.append((stride, extent))
        stride *= extent
    return tuple(found)


def offsets_of(sender: Integers, receiver: Integers, digits: Digits) -> Integers:
    """Return how much farther on receivers are, digit by digit."""
    offset = 0 * sender
    for stride, extent in digits:
        offset = offset + (receiver // stride - sender // stride) % extent * stride
    return offset


@dataclass(frozen=True, order=True)
class Hop:
    """From every device to the one whose digit (stride, extent) is `by` higher."""

    stride: int
    extent: int
    by: int

    def to(self, device: Integers) -> Integers:
        """Return the receivers of devices."""
        digit = device // self.stride % self.extent
        return device + ((digit + self.by) % self.extent - digit) * self.stride

    @property
    def back(self) -> Hop:
        """From every device to the one that sends to it."""
        return replace(self, by=self.extent - self.by)


@dataclass(frozen=True)
class Round:
    """A hop, and what makes it: (place it leaves, place it comes to)."""

    hop: Hop
    moves: tuple[tuple[int, int], ...]


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
    def carried(self) -> tuple[int, ...]:
        """Of every move what goes: the number of the place in which it was at first."""
        held, found = list(range(self.starts)) + [0] * (self.places - self.starts), []
        for each in self.rounds:
            numbers = [held[here] for here, _ in each.moves]
            for number, (_, there) in zip(numbers, each.moves, strict=True):
                held[there] = number
            found += numbers
        return tuple(found)

    def path(self, number: int) -> tuple[tuple[Hop, tuple[int, int]], ...]:
        """Return the hops and moves of what was in a place at first."""
        moves = [(each.hop, move) for each in self.rounds for move in each.moves]
        pairs = zip(moves, self.carried, strict=True)
        return tuple(move for move, carried in pairs if carried == number)

    @property
    def partners(self) -> tuple[Hop, ...]:
        """To whom a device sends and of whom it gets."""
        hops = {each.hop for each in self.rounds}
        return tuple(sorted(hops | {hop.back for hop in hops}))


def steps(extent: int) -> tuple[int, ...]:
    """Return the changes of a digit, modulo its extent, that are powers of two both ways.

    >>> [steps(extent) for extent in (2, 3, 5, 7, 17)]
    [(1,), (1, 2), (1, 4), (), (1, 16)]
    """
    return tuple(
        by for by in range(1, extent) if by.bit_count() == 1 and (extent - by).bit_count() == 1
    )


def times(extent: int, value: int) -> tuple[int, int]:
    """Return the step, and how often it is made, that changes a digit by a value: the fewest times.

    >>> times(5, 2), times(5, 3), times(3, 2)
    ((1, 2), (4, 2), (2, 1))
    """
    counts = [
        (count, by)
        for by in steps(extent)
        for count in range(extent)
        if count * by % extent == value
    ]
    count, by = min(counts)
    return by, count


def is_routed(digits: Digits) -> bool:
    """Return whether hops lead from every device to every other."""
    return all(steps(extent) for _, extent in digits)


def routed(offsets: Sequence[int], digits: Digits) -> RoutedSchedule:
    """Return the schedule in which each piece goes its own way."""
    offsets = tuple(sorted(offsets))
    at = list(range(len(offsets)))
    free: list[int] = []
    places, rounds = len(at), []
    for hop, moving in _own_ways(offsets, digits):
        more = max(len(moving) - len(free), 0)
        free += range(places, places + more)
        places += more
        landing, free = free[: len(moving)], free[len(moving) :]
        moves = tuple((at[number], place) for number, place in zip(moving, landing, strict=True))
        rounds.append(Round(hop, moves))
        free = sorted([*free, *(at[number] for number in moving)])
        for number, place in zip(moving, landing, strict=True):
            at[number] = place
    return RoutedSchedule(offsets, tuple(rounds), len(offsets), places, tuple(at))


def _own_ways(offsets: Sequence[int], digits: Digits) -> Iterator[tuple[Hop, list[int]]]:
    """Yield every round with the numbers of the offsets whose pieces move in it."""
    for stride, extent in digits:
        needs = [
            times(extent, digit) if digit else (0, 0)
            for digit in (offset // stride % extent for offset in offsets)
        ]
        for by in steps(extent):
            for turn in range(extent):
                moving = [n for n, (step, count) in enumerate(needs) if step == by and count > turn]
                if moving:
                    yield Hop(stride, extent, by), moving


def spread(offsets: Sequence[int], digits: Digits) -> RoutedSchedule:
    """Return the schedule in which source shards go, copied wherever their ways part."""
    offsets = tuple(sorted(offsets))
    place, rounds = {0: 0}, []
    for hop, turn, goals in _shared_ways(offsets, digits):
        moves = []
        for goal in goals:
            here = goal + turn * hop.by % hop.extent * hop.stride
            there = goal + (turn + 1) * hop.by % hop.extent * hop.stride
            place[there] = len(place)
            moves.append((place[here], place[there]))
        rounds.append(Round(hop, tuple(moves)))
    arrives = tuple(place[offset] for offset in offsets)
    return RoutedSchedule(offsets, tuple(rounds), 1, len(place), arrives)


def _shared_ways(offsets: Sequence[int], digits: Digits) -> Iterator[tuple[Hop, int, list[int]]]:
    """Yield every round: its hop, how often it was made before, and the offsets, but for that
    digit, of the shards that make it."""
    for stride, extent in digits:
        ways: dict[int, dict[int, int]] = {}
        for offset in offsets:
            digit = offset // stride % extent
            if digit:
                by, count = times(extent, digit)
                so_far = ways.setdefault(by, {})
                so_far[offset % stride] = max(so_far.get(offset % stride, 0), count)
        for by, goals in sorted(ways.items()):
            for turn in range(max(goals.values())):
                yield (
                    Hop(stride, extent, by),
                    turn,
                    sorted(goal for goal, count in goals.items() if count > turn),
                )


def fault(schedule: RoutedSchedule, digits: Digits, *, spreads: bool) -> str:
    """Return what is wrong with a schedule, or the empty string: carried out, each offset's
    piece or shard is where it arrives, nothing comes to a place that is in use, and what goes
    was there."""
    held = {0: (0, 0)} if spreads else {n: (offset, 0) for n, offset in enumerate(schedule.offsets)}
    for each in schedule.rounds:
        leaves = {here for here, _ in each.moves}
        kept = held if spreads else {p: v for p, v in held.items() if p not in leaves}
        before, held = held, dict(kept)
        for here, there in each.moves:
            if here not in before or there in before or there >= schedule.places:
                return f"a move from place {here} to place {there}"
            wanted, gone = before[here]
            held[there] = wanted, _added(gone, each.hop, digits)
    for offset, place in zip(schedule.offsets, schedule.arrives, strict=True):
        if held.get(place) != ((0, offset) if spreads else (offset, offset)):
            return f"what offset {offset} takes is not in place {place}"
    return ""


def _added(offset: int, hop: Hop, digits: Digits) -> int:
    assert (hop.stride, hop.extent) in digits
    digit = offset // hop.stride % hop.extent
    return offset + ((digit + hop.by) % hop.extent - digit) * hop.stride
