"""Choose the holder rule whose busiest sender sends the fewest elements, without listing transfers.

The number of elements that a device sends is a sum over receivers, and this sum factors into a
product over dimensions. The load of a device therefore takes one table look-up per dimension,
however many devices there are. Tiles that their receivers already hold are subtracted afterwards;
each device has at most one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from shardwright.ir.arrays import Integers
from shardwright.ir.exchange import Exchange, HolderRule
from shardwright.ir.layout import Layout, write_digits
from shardwright.ir.mesh import Digit
from shardwright.ir.reshard import Reshard
from shardwright.ir.tiles import DimTiles

# The maximum number of pieces of a tile. With more, messages cost more than the balance gains.
MAX_PIECES = 64
# The maximum alignment of pieces, in elements: the 128 lanes of a TPU's vector registers.
MAX_UNIT = 128
# Among rules whose busiest sender is within this factor of the least, the one with the fewest cuts
# wins.
TOLERANCE = 1 + 1 / 64


@dataclass(frozen=True)
class Loads:
    """The elements that devices hold, lack and send, by which holder rules are compared."""

    source: Layout
    target: Layout
    exchange: Exchange

    @staticmethod
    def of(reshard: Reshard) -> Loads:
        """Return the loads of the exchange of a reshard."""
        exchange = Exchange.of(reshard, HolderRule())
        return Loads(exchange.source, exchange.target, exchange)

    @cached_property
    def positions(self) -> Integers:
        """All source positions: int64 [n]."""
        return np.arange(self.source.mesh.size, dtype=np.int64)

    @cached_property
    def members(self) -> tuple[Integers, Integers]:
        """The target positions and the source positions of the m devices in both meshes."""
        receivers = np.arange(self.target.mesh.size, dtype=np.int64)
        held = self.exchange.source_position_of(receivers)
        return receivers[held >= 0], held[held >= 0]

    @cached_property
    def held_widths(self) -> Integers:
        """The widths of the part of its target shard that each device in both meshes already holds:
        [m, dims]."""
        receivers, holders = self.members
        own, wanted = self.source.boxes()[holders], self.target.boxes()[receivers]
        low = np.maximum(own[:, :, 0], wanted[:, :, 0])
        high = np.minimum(own[:, :, 1], wanted[:, :, 1])
        widths: Integers = np.maximum(high - low, 0)
        return widths

    @cached_property
    def shard_number(self) -> Integers:
        """The row-major number of the shard at each source position."""
        number = np.zeros_like(self.positions)
        for dim in self.source.dims:
            number = number * dim.parts + dim.index(self.positions)
        return number

    @cached_property
    def boxes(self) -> tuple[Integers, Integers]:
        """The boxes of source positions and the boxes of target positions, [n, dims, 2] each. They
        omit elements that the other side lacks: along a hidden dimension, one side may have only
        the first element."""
        ends = [min(dim.source.extent, dim.target.extent) for dim in self.exchange.dims]
        bound = np.array(ends, dtype=np.int64)[:, None]
        return np.minimum(self.source.boxes(), bound), np.minimum(self.target.boxes(), bound)

    @cached_property
    def volume(self) -> Integers:
        """The number of elements of the shard at each source position."""
        return _volumes(self.boxes[0])

    @cached_property
    def lacking(self) -> Integers:
        """For each source position, the number of elements of its shard that target devices lack,
        counted once per device."""
        held = np.prod(self.held_widths, axis=1, dtype=np.int64)
        of_shard = np.zeros(self.positions.size, dtype=np.int64)
        np.add.at(of_shard, self.shard_number[self.members[1]], held)
        lacking: Integers = self.target.replicas * self.volume - of_shard[self.shard_number]
        return lacking

    def bound_sent_max(self) -> int:
        """Return a lower bound on the elements that the busiest sender sends, under any rule."""
        holders = self.source.replicas
        return int(np.max(-(-self.lacking // holders)))

    def received(self) -> Integers:
        """Return the number of elements that each target position lacks, and receives in a direct
        plan."""
        lacking = _volumes(self.boxes[1])
        lacking[self.members[0]] -= np.prod(self.held_widths, axis=1, dtype=np.int64)
        return lacking

    def sent(self, rule: HolderRule) -> Integers:
        """Return the number of elements that each source position sends under a rule."""
        return self._sent_own() if rule.kind == "own" else self._sent_turns(rule)

    def _sent_own(self) -> Integers:
        load = np.full(self.positions.size, self._receivers_of_own(), dtype=np.int64)
        for tiles in self.exchange.dims:
            load *= self._own_dimension(tiles)
        np.subtract.at(load, self.members[1], np.prod(self.held_widths, axis=1, dtype=np.int64))
        return load

    def leaving(self, rule: HolderRule) -> Integers:
        """Return the number of distinct elements that other devices receive from each source
        position under a rule."""
        if rule.kind == "own":
            return self._leaving_own()
        rounds = np.minimum(self._rounds(rule), rule.pieces)
        return self._sent_in(rule, rounds) - self._kept_pieces(rule)

    def _leaving_own(self) -> Integers:
        load = np.ones(self.positions.size, dtype=np.int64)
        for tiles in self.exchange.dims:
            load *= self._own_dimension(tiles)
        if self._receivers_of_own() == 1:  # otherwise other devices receive the kept tile
            np.subtract.at(load, self.members[1], np.prod(self.held_widths, axis=1, dtype=np.int64))
        return load

    def _receivers_of_own(self) -> int:
        """Return the number of replicas of a target shard that receive a tile from the same source
        position under the rule `own`."""
        replicas = np.arange(self.target.replicas, dtype=np.int64)
        seen = self.source.replica(write_digits(self.target.free, replicas) + 0 * replicas)
        return replicas.size // np.unique(seen).size

    def _own_dimension(self, tiles: DimTiles) -> Integers:
        """Return, for each source position, the total width of its tiles along a dimension under
        the rule `own`."""
        pairs, replicas = tiles.pairs, self.source.replicas

        def free_part(target_index: Integers) -> Integers:
            place = tiles.target.place(target_index) + 0 * target_index
            free: Integers = self.source.replica(place)
            return free

        keys, slot = np.unique(
            pairs.source * replicas + free_part(pairs.target), return_inverse=True
        )
        widths = np.zeros(keys.size, dtype=np.int64)
        np.add.at(widths, slot, pairs.width)
        own_target = tiles.target.index(self.positions) + 0 * self.positions
        wanted = tiles.source.index(self.positions) * replicas + free_part(own_target)
        slot = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
        found: Integers = np.where(keys[slot] == wanted, widths[slot], 0)
        return found

    def _sent_turns(self, rule: HolderRule) -> Integers:
        saved = np.zeros(self.positions.size, dtype=np.int64)
        for _, sender, elements in self._held_pieces(rule):
            np.add.at(saved, sender, elements)
        return self._sent_in(rule, self._rounds(rule)) - saved

    def _turn_and_part(self, rule: HolderRule) -> tuple[Integers, Integers]:
        """Return two arrays with an entry for each source position: the index of the first
        target replica that it sends to, and the index of the piece that it sends first."""
        part, turn = np.divmod(
            self.source.replica(self.positions), self.source.replicas // rule.pieces
        )
        return turn, part

    def _rounds(self, rule: HolderRule) -> Integers:
        """Return, for each source position, the number of replicas of a target shard that it sends
        to."""
        holders = self.source.replicas // rule.pieces
        rounds: Integers = -(-(self.target.replicas - self._turn_and_part(rule)[0]) // holders)
        return np.maximum(rounds, 0)

    def _sent_in(self, rule: HolderRule, rounds: Integers) -> Integers:
        """Return the number of elements that each source position sends to its first `rounds`
        replicas of every target shard."""
        load = self._piece_rounds(rule, self._turn_and_part(rule)[1], rounds)
        widths = self.boxes[0][:, :, 1] - self.boxes[0][:, :, 0]
        for axis in range(len(self.source.dims)):
            if axis != rule.cut:
                load = load * widths[:, axis]
        return load

    def _piece_rounds(self, rule: HolderRule, part: Integers, rounds: Integers) -> Integers:
        """Return, for each source position, the total width of its pieces along dimension `cut`
        in a number of rounds. `part`: the index of its first piece."""
        pieces = rule.pieces
        if not self.source.dims:
            return rounds
        tiles = self.exchange.dims[rule.cut]
        pairs = tiles.pairs
        table = np.zeros((tiles.source.parts, pieces), dtype=np.int64)
        for piece in range(pieces):
            width = _piece_width(pairs.width, piece, rule)
            np.add.at(table, (pairs.source, (piece + pairs.target) % pieces), width)
        index = tiles.source.index(self.positions) + 0 * self.positions
        full, rest = rounds // pieces, rounds % pieces
        total: Integers = table.sum(axis=1)[index] * full
        for turn in range(pieces):
            total += np.where(turn < rest, table[index, (part - turn) % pieces], 0)
        return total

    def _held_pieces(self, rule: HolderRule) -> Iterator[tuple[int, Integers, Integers]]:
        """Yield each piece with arrays about the devices in both meshes: the source position that
        would send the piece to the device, and the number of elements of the piece that the device
        already holds."""
        receivers, holders = self.members
        rest = [axis for axis in range(len(self.source.dims)) if axis != rule.cut]
        others = np.prod(self.held_widths[:, rest], axis=1, dtype=np.int64)
        shard = tuple(index + 0 * holders for index in self.source.index(holders))
        turns = Exchange(self.source, self.target, rule)
        for piece in range(rule.pieces):
            sender = turns.holder(shard, receivers, piece) + 0 * receivers
            width: Integers | int = 1
            if self.source.dims:
                width = _piece_width(self.held_widths[:, rule.cut], piece, rule)
            yield piece, sender, others * width

    def _kept_pieces(self, rule: HolderRule) -> Integers:
        """Return, for each source position, the number of elements in pieces that it sends to no
        device, because all receivers of the piece already hold it."""
        turn_parts, rounds = self._turn_and_part(rule), self._rounds(rule)
        kept = np.zeros(self.positions.size, dtype=np.int64)
        receivers = self.members[0]
        tile = np.zeros_like(receivers)
        for dim in self.target.dims:
            tile = tile * dim.parts + dim.index(receivers)
        shift = self.target.dims[rule.cut].index(receivers) if self.target.dims else 0 * receivers
        for piece, sender, elements in self._held_pieces(rule):
            first = (turn_parts[1][sender] - piece - shift) % rule.pieces
            served = -(-(rounds[sender] - first) // rule.pieces)
            keys = sender * (1 + tile.max(initial=0)) + tile
            _, place, slot, held = np.unique(
                keys, return_index=True, return_inverse=True, return_counts=True
            )
            alone = place[(held[slot] == served)[place]]
            np.add.at(kept, sender[alone], elements[alone])
        return kept


def _volumes(boxes: Integers) -> Integers:
    """Return the number of elements of each box; `boxes`: [n, dims, 2]."""
    volumes: Integers = np.prod(boxes[:, :, 1] - boxes[:, :, 0], axis=1, dtype=np.int64)
    return volumes


def _piece_width(width: Integers, piece: int, rule: HolderRule) -> Integers:
    units = width // rule.unit
    return (units // rule.pieces + (piece < units % rule.pieces)) * rule.unit


def candidates(exchange: Exchange) -> tuple[HolderRule, ...]:
    """Return the rules to compare, by ascending number of pieces."""
    rules: list[HolderRule] = []
    if exchange.same_order and _refines(exchange):
        rules.append(HolderRule("own"))
    replicas = exchange.source.replicas
    for pieces in range(1, min(replicas, MAX_PIECES) + 1):
        cut = _cut_dimension(exchange, pieces)
        if pieces == 1:
            rules.append(HolderRule("turns"))
        elif replicas % pieces == 0 and cut is not None:
            rules.append(HolderRule("turns", pieces, cut, _unit(exchange.dims[cut], pieces)))
    return tuple(rules)


def _refines(exchange: Exchange) -> bool:
    """Return whether the digits of both sides have a common refinement: in ascending order, each of
    their borders divides the next."""
    ends = {1, exchange.source.mesh.size}
    for layout in (exchange.source, exchange.target):
        digits: tuple[Digit, ...] = layout.free
        for dim in layout.dims:
            digits += dim.digits
        ends |= {end for digit in digits for end in (digit.stride, digit.stride * digit.size)}
    chain = sorted(ends)
    return all(b % a == 0 for a, b in pairwise(chain))


def _cut_dimension(exchange: Exchange, pieces: int) -> int | None:
    """Return the dimension along which to cut tiles into pieces: the outermost one with at least 16
    elements per piece, otherwise the dimension with the longest tiles. Return None if even these
    tiles are too short."""
    lengths = [min(tiles.source.size, tiles.target.size) for tiles in exchange.dims]
    lengths[: exchange.source.hidden] = [1] * exchange.source.hidden
    if not lengths or max(lengths) < pieces:
        return None
    long_enough = [axis for axis, length in enumerate(lengths) if length >= 16 * pieces]
    return long_enough[0] if long_enough else lengths.index(max(lengths))


def _unit(tiles: DimTiles, pieces: int) -> int:
    """Return the alignment of pieces: the largest power of two, at most MAX_UNIT, that divides the
    width of every tile and leaves at least 16 units per piece."""
    unit, widths = 1, math.gcd(tiles.grain, tiles.source.extent)
    longest = min(tiles.source.size, tiles.target.size)
    while widths % (2 * unit) == 0 and longest >= 16 * pieces * 2 * unit and unit < MAX_UNIT:
        unit *= 2
    return unit


def choose_rule(loads: Loads) -> HolderRule:
    """Return the rule whose busiest sender sends the fewest elements. If several rules are
    within TOLERANCE of that number, return the rule with the fewest pieces."""
    rules = candidates(loads.exchange)
    if loads.source.replicas == 1 or len(rules) == 1:
        return rules[0]
    bound = loads.bound_sent_max() * TOLERANCE
    busiest: list[int] = []
    for rule in rules:
        busiest.append(int(loads.sent(rule).max()))
        if busiest[-1] <= bound:
            return rule
    limit = min(busiest) * TOLERANCE
    return next(rule for rule, load in zip(rules, busiest, strict=True) if load <= limit)
