"""The cost of the basis collectives on a topology.

A step lasts as long as its busiest link: messages * latency + bytes / bandwidth. A group of devices
that differ in some digits of the mesh position performs an all-gather in the cheapest of three
ways:

  - in rings along one topology axis after another. Each device forwards received shards in
    both directions at once. If an axis does not wrap, the ring is a chain.
  - in rings along all axes at once. Shards are cut into equal parts, which use the axes in
    different orders.
  - over one prime factor of the group after another (recursive doubling), with fewer messages.

The fixed seconds of the platform's library (`Network.protocols`) are added once per collective. A
reduce-scatter is a gather in reverse, and an all-reduce is both. In an all-to-all every device
sends to every other directly. Let the axes of a torus wrap and have n devices each, and let W be
the bandwidth of an axis in both directions together. For an array of B bytes this gives the table
in "How to Scale Your Model":

    all-gather       B (n^k - 1)/n^k / (W k)       along k axes; the table has B / (W k)
    reduce-scatter   the same
    all-reduce       twice
    all-to-all       B / (4 W)                     along one axis, n even: a quarter

An uneven dimension is priced by its largest shard, because arrays are padded when they move.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shardwright.codegen.hardware.topology import Torus
from shardwright.codegen.moves.basis.digits import Pair, ordered, parts_of, primes
from shardwright.codegen.moves.network.links import CHUNK, Flows, Load, Network
from shardwright.ir.arrays import Integers
from shardwright.ir.layout import read_digits, write_digits
from shardwright.ir.mesh import Digit

Pairs = tuple[tuple[int, int], ...]

# The maximum number of classes of digits of a group; the model tries all orders of the classes.
MOST_CLASSES = 3
# The maximum number of links of a topology for which loads are cached, to bound memory.
MOST_KEPT = 1 << 13


@dataclass(frozen=True)
class PhaseCost:
    """The time of a phase in seconds, as a function of bytes: the maximum of
    `latency + bytes * rate` over the links."""

    lines: tuple[tuple[float, float], ...]  # (latency, rate) pairs, none dominated by another

    def seconds(self, nbytes: float) -> float:
        """Return the time in seconds for which the busiest link is busy."""
        if len(self.lines) == 1:
            ((latency, rate),) = self.lines
            return latency + nbytes * rate
        return max(latency + nbytes * rate for latency, rate in self.lines)

    def scaled(self, factor: float, message: float = 1.0) -> PhaseCost:
        """Return the cost with `factor` times the bytes, and messages that take `message` times as
        long."""
        lines = ((latency * message, rate * factor) for latency, rate in self.lines)
        return PhaseCost(tuple(lines))


@dataclass(frozen=True)
class Price:
    """The price of a collective: the time of the cheapest of several ways to run it, in seconds."""

    ways: tuple[tuple[float, tuple[PhaseCost, ...]], ...]  # fixed seconds, and phases in sequence

    @staticmethod
    def of(ways: Iterable[tuple[PhaseCost, ...]], network: Network) -> Price:
        """Return the price of a collective that runs in one of these sequences of phases, under any
        protocol of the platform's library."""
        return Price(
            tuple(
                (each.collective, tuple(phase.scaled(each.byte, each.message) for phase in way))
                for way, each in itertools.product(ways, network.protocols)
            )
        )

    def seconds(self, nbytes: float, times: int = 1) -> float:
        """Return the time of a collective in seconds. Each device starts with `nbytes` bytes.
        `times`: how often its phases run."""
        return min(
            once + times * sum(phase.seconds(nbytes) for phase in way) for once, way in self.ways
        )


@dataclass
class Prices:
    """The prices of collectives over groups of a mesh, with cached routes.

    `ids`: the device id at each mesh position.
    """

    network: Network
    ids: Integers
    _loads: dict[tuple[str, tuple[Pair, ...]], Load] = field(default_factory=dict)
    _rings: dict[tuple[Pair, ...], PhaseCost] = field(default_factory=dict)
    _gathers: dict[tuple[Pair, ...], Price] = field(default_factory=dict)
    _exchanges: dict[tuple[Pair, ...], Price] = field(default_factory=dict)
    _permutes: dict[tuple[tuple[Pair, ...], Pairs], Price] = field(default_factory=dict)
    _axes: dict[Pair, frozenset[int]] = field(default_factory=dict)

    def seconds(self, op: str, digits: tuple[Pair, ...], received: int) -> float:
        """Return the time in seconds of a collective in which every device receives this many
        bytes, by a ring algorithm."""
        count = parts_of(digits)
        part = received / (count - 1)  # the bytes from each other device
        if op == "all_gather":
            return self.all_gather(digits, part)
        if op == "all_reduce":
            return self.all_reduce(digits, part * count / 2)
        scatters = op == "reduce_scatter"
        return (self.reduce_scatter if scatters else self.all_to_all)(digits, part * count)

    def all_gather(self, digits: tuple[Pair, ...], shard: float) -> float:
        """Return the time in seconds of an all-gather of shards of `shard` bytes. `digits`: the
        digits in which the devices of a group differ."""
        return self._gather(ordered(digits)).seconds(shard)

    def reduce_scatter(self, digits: tuple[Pair, ...], shard: float) -> float:
        """Return the time in seconds of a reduce-scatter of partial sums of `shard` bytes: every
        device of a group gets one part of the sum."""
        return self.all_gather(digits, shard / parts_of(digits))

    def all_reduce(self, digits: tuple[Pair, ...], shard: float) -> float:
        """Return the time in seconds of an all-reduce of partial sums of `shard` bytes: every
        device of a group gets the sum."""
        return self._gather(ordered(digits)).seconds(shard / parts_of(digits), times=2)

    def all_to_all(self, digits: tuple[Pair, ...], shard: float) -> float:
        """Return the time in seconds of an all-to-all: every device sends an equal part of its
        `shard` bytes to each device of its group."""
        key = ordered(digits)
        if key not in self._exchanges:
            phase = _phase(self.network, self._all_pairs(key))
            self._exchanges[key] = Price.of(((phase,),), self.network)
        return self._exchanges[key].seconds(shard / parts_of(digits))

    def permute(self, digits: tuple[Pair, ...], pairs: Pairs, shard: float) -> float:
        """Return the time in seconds of a permute. `pairs`: (sender, receiver) of each group."""
        key = digits, pairs
        if key not in self._permutes:
            groups = self._groups(digits)
            senders, receivers = (groups[:, side] for side in np.transpose(pairs))
            away = senders != receivers
            flows = Flows(senders[away], receivers[away], np.ones(int(away.sum())))
            way = (_phase(self.network, self.network.load(flows)),)
            self._permutes[key] = Price.of((way,), self.network)
        return self._permutes[key].seconds(shard)

    def _gather(self, digits: tuple[Pair, ...]) -> Price:
        if digits not in self._gathers:
            self._gathers[digits] = self._gather_price(digits)
        return self._gathers[digits]

    def _gather_price(self, digits: tuple[Pair, ...]) -> Price:
        classes = self._classes(digits)
        ways = [self._one_by_one(order) for order in itertools.permutations(classes)]
        for large_first in (False, True):
            factors = [(digit,) for digit in _cut(digits, large_first)]
            ways += [self._one_by_one(factors), self._one_by_one(factors[::-1])]
        if len(classes) > 1:
            ways.append((_phase(self.network, self._in_turns(classes)),))
        return Price.of(_cheapest(ways), self.network)

    def _one_by_one(self, parts: Sequence[tuple[Pair, ...]]) -> tuple[PhaseCost, ...]:
        """Return the phases of gathers over one set of digits after another. Each phase moves
        the shards that the previous phases gathered."""
        sizes = [parts_of(part) for part in parts]
        before = itertools.accumulate(sizes, operator.mul, initial=1)
        return tuple(
            self._ring(part).scaled(count) for part, count in zip(parts, before, strict=False)
        )

    def _ring(self, digits: tuple[Pair, ...]) -> PhaseCost:
        """Return the cost of a gather in a ring or a chain, for shards of one byte."""
        if digits not in self._rings:
            self._rings[digits] = _phase(self.network, self._forwarding(digits))
        return self._rings[digits]

    def _in_turns(self, classes: list[tuple[Pair, ...]]) -> Load:
        """Return the load of a gather over all classes at once, for shards of one byte. A shard is
        cut into equal parts, each of which begins with a different class."""
        loads = [self._forwarding(part) for part in classes]
        sizes = [parts_of(part) for part in classes]
        count, total = len(loads), self.network.nothing()
        for first in range(count):
            order = tuple((first + turn) % count for turn in range(count))
            before = _before(order, sizes)
            for c in order:
                total = total + loads[c].scaled(before[c] / count)
        return total

    def _groups(self, digits: tuple[Pair, ...]) -> Integers:
        """Return the device ids of each group of devices that differ only in these digits: [groups,
        n]."""
        found: Integers = self.ids[positions_of_groups(digits, self.ids.size)]
        return found

    def _classes(self, digits: tuple[Pair, ...]) -> list[tuple[Pair, ...]]:
        """Group the prime factors of digits into at most MOST_CLASSES classes. Factors that share a
        topology axis, directly or through others, are in one class; surplus classes are merged
        into the last. Digits are cut with small or large factors first, whichever makes more
        classes."""
        cuts = {tuple(_cut(digits, large_first)): None for large_first in (False, True)}
        classes = max((self._joined(cut) for cut in cuts), key=len)
        if len(classes) > MOST_CLASSES:
            rest = itertools.chain.from_iterable(classes[MOST_CLASSES - 1 :])
            classes = [*classes[: MOST_CLASSES - 1], tuple(rest)]
        return classes

    def _joined(self, digits: tuple[Pair, ...]) -> list[tuple[Pair, ...]]:
        found: list[tuple[frozenset[int], tuple[Pair, ...]]] = []
        for digit in digits:
            axes = self._axes_of(digit)
            joined: tuple[Pair, ...] = (digit,)
            for other_axes, others in [entry for entry in found if entry[0] & axes]:
                found.remove((other_axes, others))
                axes, joined = axes | other_axes, others + joined
            found.append((axes, joined))
        return [digits for _, digits in found]

    def _axes_of(self, digit: Pair) -> frozenset[int]:
        if digit not in self._axes:
            group = self._groups((digit,))
            place = self.network.topology.coordinates(group.ravel())
            place = place.reshape(*group.shape, -1)
            apart = (place != place[:, :1]).any(axis=(0, 1))
            self._axes[digit] = frozenset(np.flatnonzero(apart).tolist())
        return self._axes[digit]

    def _forwarding(self, digits: tuple[Pair, ...]) -> Load:
        return self._kept(self._ring_or_chain, digits)

    def _kept(self, route: Callable[[tuple[Pair, ...]], Load], digits: tuple[Pair, ...]) -> Load:
        key = route.__name__, digits
        if key in self._loads:
            return self._loads[key]
        load = route(digits)
        if load.nbytes.size <= MOST_KEPT:
            self._loads[key] = load
        return load

    def _ring_or_chain(self, digits: tuple[Pair, ...]) -> Load:
        groups = self._in_order(self._groups(digits))
        n = groups.shape[1]
        step = np.arange(n)
        ring = (
            (groups, np.roll(groups, -1, axis=1), (n - 1) / 2, n // 2),
            (groups, np.roll(groups, 1, axis=1), (n - 1) / 2, (n - 1) // 2),
        )
        chain = (
            (groups[:, :-1], groups[:, 1:], step[1:], step[1:]),
            (groups[:, 1:], groups[:, :-1], n - step[1:], n - step[1:]),
        )
        loads = [self._load_of(way) for way in (ring, chain)]
        return min(loads, key=lambda load: float((load.nbytes * self.network.per_byte).max()))

    def _load_of(self, flows: Iterable[tuple[Any, ...]]) -> Load:
        """Return the load of flows. A flow is (sender, receiver, weight, number of messages), as
        arrays with one row per group."""
        each = (np.broadcast_arrays(*arrays) for arrays in flows)
        columns = zip(*([array.ravel() for array in arrays] for arrays in each), strict=True)
        sender, receiver, weight, count = map(np.concatenate, columns)
        legs = self.network.messages(sender, receiver)
        return self.network.load(Flows(sender, receiver, weight.astype(np.float64)), count * legs)

    def _in_order(self, groups: Integers) -> Integers:
        """Return the device ids with each row sorted by coordinates in the topology."""
        place = self.network.topology.coordinates(groups.ravel()).reshape(*groups.shape, -1)
        order = np.lexsort(tuple(place[:, :, axis] for axis in reversed(range(place.shape[2]))))
        return np.take_along_axis(groups, order, axis=1)

    def _all_pairs(self, digits: tuple[Pair, ...]) -> Load:
        """Return the load of one byte from every device of a group to every other device of the
        group.

        On a torus, routes traverse one axis after the other. The load along the axes of one class
        of digits is therefore the load within the groups of this class, times the number of values
        of all other digits.
        """
        topology = self.network.topology
        if not isinstance(topology, Torus):
            load = topology.all_pairs(self._groups(digits), self.network.devices)
            return Load(load, load)
        classes = self._classes(digits)
        if len(classes) == 1:
            return self._kept(self._pairs, digits)
        members, total = parts_of(digits), self.network.nothing()
        for part in classes:
            times = members // parts_of(part)
            one = self._kept(self._pairs, part)
            total = total + Load(one.messages * times, one.nbytes * times)
        return total

    def _pairs(self, digits: tuple[Pair, ...]) -> Load:
        """Return the same load as `_all_pairs`, by routing each transfer."""
        groups = self._groups(digits)
        size, load = groups.shape[1], self.network.nothing()
        rows = max(1, CHUNK // size**2)
        columns = max(1, CHUNK // (rows * size))
        for start in range(0, groups.shape[0], rows):
            part = groups[start : start + rows]
            for first in range(0, size, columns):
                senders = part[:, first : first + columns]
                sender = np.repeat(senders, size, axis=1).ravel()
                receiver = np.tile(part, (1, senders.shape[1])).ravel()
                apart = sender != receiver
                ones = np.ones(int(apart.sum()))
                load = load + self.network.load(Flows(sender[apart], receiver[apart], ones))
        return load


def prices_of(network: Network, ids: Integers) -> Prices:
    """Return the prices of a network for a mesh, cached. `ids`: the device id at each mesh
    position."""
    return _prices(network, ids.tobytes())


@functools.lru_cache(maxsize=16)
def _prices(network: Network, ids: bytes) -> Prices:
    return Prices(network, np.frombuffer(ids, dtype=np.int64))


def forget_prices() -> None:
    """Clear the cache of `prices_of`, so that a measurement includes routing."""
    _prices.cache_clear()


def positions_of_groups(digits: tuple[Pair, ...], count: int) -> Integers:
    """Return the positions of a mesh of `count` devices in groups that differ only in these digits:
    [groups, n]."""
    place = tuple(Digit(*pair) for pair in digits)
    positions = np.arange(count, dtype=np.int64)
    bases = positions[read_digits(place, positions) == 0]
    members = np.arange(math.prod(d.size for d in place), dtype=np.int64)
    found: Integers = bases[:, None] + write_digits(place, members)[None, :]
    return found


def _cut(digits: tuple[Pair, ...], large_first: bool) -> Iterator[Pair]:
    """Yield the prime factors of digits. The factors of one digit are in order from minor to major.
    `large_first`: whether large factors are minor."""
    for stride, size in digits:
        for factor in sorted(primes(size), reverse=large_first):
            yield stride, factor
            stride *= factor


def _before(order: tuple[int, ...], sizes: list[int]) -> dict[int, int]:
    """Return, for each class, the number of shards that earlier gathers have combined when classes
    are gathered in this order."""
    found, product = {}, 1
    for c in order:
        found[c] = product
        product *= sizes[c]
    return found


def _cheapest(ways: Iterable[tuple[PhaseCost, ...]]) -> tuple[tuple[PhaseCost, ...], ...]:
    """Return the ways that may be cheapest for some number of bytes. If each phase of a way has a
    single (latency, rate) pair, as on equal links, merge the phases."""
    lines, others = [], []
    for way in dict.fromkeys(ways):
        if all(len(phase.lines) == 1 for phase in way):
            each = zip(*(phase.lines[0] for phase in way), strict=True)
            latency, rate = map(sum, each)
            lines.append((rate, latency))
        else:
            others.append(way)
    kept: list[tuple[float, float]] = []
    for rate, latency in sorted(set(lines)):
        if not kept or latency < kept[-1][0]:
            kept.append((latency, rate))
    return (*((PhaseCost((line,)),) for line in kept), *others)


def _phase(network: Network, load: Load) -> PhaseCost:
    """Return the cost of a load: the (latency, rate) pairs of its links, without dominated
    pairs: neither of their numbers exceeds that of another pair."""
    line = np.empty(load.nbytes.size, dtype=np.complex128)  # complex numbers sort like pairs
    line.real, line.imag = load.messages * network.per_message, load.nbytes * network.per_byte
    kept: list[tuple[float, float]] = []
    for each in np.unique(line)[::-1].tolist():
        if not kept or each.imag > kept[-1][1]:
            kept.append((each.real, each.imag))
    return PhaseCost(tuple(kept))
