"""Which devices can send to each other directly, and whether hops reach all devices. A device of a
v5e sends directly only over a power of two of links along one axis."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import numpy as np

from shardwright.codegen.backends.pallas_tpu.routed.ways import (
    Digits,
    Hop,
    Numbering,
    Ways,
    digits_of,
    is_ring,
    is_routed,
    steps,
)
from shardwright.codegen.backends.pallas_tpu.terms import moved
from shardwright.codegen.hardware.torus import Torus
from shardwright.ir.algebra.index import Integers
from shardwright.ir.errors import InputError
from shardwright.ir.exchange import Exchange, ids_of
from shardwright.ir.plan import DirectPlan
from shardwright.ir.transfers import enumerate_transfers


@dataclass(frozen=True)
class Grid:
    """The devices of an exchange on a torus. A device's number is its mesh position if both meshes
    have the same device order, otherwise its rank by device id.

    `ids`: the device id of each number, which is also its place in the torus; `straight`: whether
    one hop covers the full distance along an axis, for devices that can send over any distance;
    `on_lines`: whether axes that do not wrap around count as lines rather than as digits of extent
    2."""

    torus: Torus
    ids: Integers
    straight: bool = False
    on_lines: bool = False

    @staticmethod
    def of(exchange: Exchange, torus: Torus) -> Grid:
        """Return the grid of an exchange's devices, without straight hops or lines."""
        return Grid(torus, numbered(exchange))

    @property
    def digits(self) -> Digits:
        """The digits of a device's place (see `numbering`). A digit has a prime extent, unless it
        represents a ring (a whole axis that wraps around) or a line (see `on_lines`). With straight
        hops there is one digit per axis."""
        return self.numbering.digits

    @cached_property
    def numbering(self) -> Numbering:
        """The numbering of places. A device's place equals its number, except on lines."""
        digits = digits_of(self.ids.size)
        if self.straight:
            return Numbering(self._along_axes(digits))
        for extent, wraps in zip(self.torus.dims, self.torus.wrap, strict=True):
            for start in range(len(digits)):
                twos = digits[start : start + extent.bit_length() - 1]
                if wraps and is_ring(extent) and self._is_round(twos, extent):
                    ring = (twos[0][0], extent)
                    digits = (*digits[:start], ring, *digits[start + len(twos) :])
        return self._with_lines(digits) if self.on_lines else Numbering(digits)

    def _with_lines(self, digits: Digits) -> Numbering:
        """Return the numbering with the longest runs of digits along one axis merged into lines. A
        line has twice as many places as devices, so steps up and down it differ in offset."""
        found, lines, stride, start = list[tuple[int, int]](), list[int](), 1, 0
        while start < len(digits):
            ends = range(len(digits), start + 1, -1)
            end = next((end for end in ends if self._is_line(digits[start:end])), start + 1)
            extent = math.prod(size for _, size in digits[start:end])
            if end > start + 1:
                extent *= 2
                lines.append(stride)
            found.append((stride, extent))
            stride *= extent
            start = end
        return Numbering(tuple(found), tuple(lines))

    def _is_line(self, digits: Digits) -> bool:
        """Return whether all digits have extent two, and devices with successive numbers are the
        same power-of-two number of links apart along one axis; one link, if the axis wraps
        around."""
        if {size for _, size in digits} != {2}:
            return False
        (stride, _), extent = digits[0], 1 << len(digits)
        coordinates, device = self.torus.coordinates(self.ids), np.arange(self.ids.size)
        before = device[device // stride % extent < extent - 1]
        moved_by = coordinates[before + stride] - coordinates[before]
        crossed = np.abs(moved_by[0])
        axis = int(crossed.argmax())
        by = int(crossed[axis])
        near = by == 1 or not self.torus.wrap[axis]
        alike = bool((moved_by == moved_by[0]).all()) and int(crossed.sum()) == by
        return near and alike and by.bit_count() == 1

    def _along_axes(self, digits: Digits) -> Digits:
        crossed = [tuple(np.flatnonzero(self._hops(Hop(*each, 1)).any(axis=0))) for each in digits]
        found: list[tuple[int, int]] = []
        for _, some in groupby(zip(crossed, digits, strict=True), key=lambda pair: pair[0]):
            own = [digit for _, digit in some]
            found.append((own[0][0], math.prod(extent for _, extent in own)))
        return tuple(found)

    def _is_round(self, twos: Digits, extent: int) -> bool:
        """Return whether the digits together number the positions on a ring of this extent."""
        if math.prod(size for _, size in twos) != extent or {size for _, size in twos} != {2}:
            return False
        return bool((self._hops(Hop(twos[0][0], extent, 1)).sum(axis=1) == 1).all())

    @cached_property
    def ways(self) -> Ways:
        """The digits, with the axis of each and the number of links that a hop along it crosses."""
        ids = self.numbering.by_place(self.ids)
        hops = [self._hops(Hop(*digit, 1), ids).max(axis=0) for digit in self.digits]
        axes = tuple(int(each.argmax()) for each in hops)
        lengths = tuple(int(each.max()) for each in hops)
        return Ways(self.digits, axes, lengths, self.torus, ids, self.straight)

    def _hops(self, hop: Hop, ids: Integers | None = None) -> Integers:
        """Return the number of links that a hop crosses along each axis, for each device that makes
        it, as int64[devices, axes]; `ids`: the device ids by place, by default `self.ids`."""
        ids = self.ids if ids is None else ids
        ends = _ends(hop, ids)
        here, there = (self.torus.coordinates(each) for each in ends)
        axes = enumerate(self.torus.dims)
        both = [self.torus.hops(axis, here[:, axis], there[:, axis]) for axis, _ in axes]
        crossed = [
            np.minimum(up, down) if wraps else up + down
            for (up, down), wraps in zip(both, self.torus.wrap, strict=True)
        ]
        return np.stack(crossed, axis=1)

    def pairs(self, exchange: Exchange) -> tuple[Integers, Integers]:
        """Return the numbers of senders and the numbers of their receivers, each pair once."""
        sender, receiver, _ = exchange.once(sent_tiles)
        pairs = np.unique(np.stack([sender, receiver]), axis=1)
        return pairs[0], pairs[1]

    def offsets(self, exchange: Exchange) -> tuple[int, ...]:
        """Return the offsets between the places of senders and receivers, in ascending order."""
        return tuple(np.unique(self.numbering.offsets(*self.pairs(exchange))).tolist())

    def senders(self, exchange: Exchange) -> tuple[tuple[int, ...], ...]:
        """Return, for each offset in ascending order, the places of the devices that have a tile to
        send over it. Return an empty tuple if every device has a tile for every offset."""
        sender, receiver = self.pairs(exchange)
        over, sender = self.numbering.offsets(sender, receiver), self.numbering.place(sender)
        offsets = np.unique(over)
        if sender.size == offsets.size * self.ids.size:
            return ()
        return tuple(tuple(sender[over == offset].tolist()) for offset in offsets.tolist())

    def is_direct(self, sender: Integers, receiver: Integers) -> bool:
        """Return whether the sender of every pair may send directly to its receiver."""
        return self._near(self.ids[sender], self.ids[receiver])

    def _near(self, sender: Integers, receiver: Integers) -> bool:
        return bool((self.torus.messages(sender, receiver) == 1).all())

    def reaches(self) -> bool:
        """Return whether devices may make all hops directly and the hops reach all devices."""
        if self.straight:  # a device may make any hop along one axis
            axes = (self._hops(Hop(*each, 1)).any(axis=0).sum() for each in self.digits)
            return not self.torus.powers_of_two and all(count == 1 for count in axes)
        if not is_routed(self.digits):
            return False
        ids = self.numbering.by_place(self.ids)
        hops = [Hop(*digit, by) for digit in self.digits for by in steps(digit[1])]
        return all(self._near(*_ends(hop, ids)) for hop in hops)


def _ends(hop: Hop, ids: Integers) -> tuple[Integers, Integers]:
    """Return the device ids of a hop's senders and of their receivers; `ids`: the device ids by
    place, negative for a place without a device."""
    place = np.arange(ids.size)
    sender, receiver = ids, ids[hop.to(place)]
    made = (sender >= 0) & (receiver >= 0)
    return sender[made], receiver[made]


def sent_tiles(exchange: Exchange) -> tuple[Integers, Integers, Integers]:
    """Return three arrays about the tiles sent: the sender and the receiver of each, int64[tiles],
    and its extents, int64[tiles, dims]."""
    moved, ids = exchange.once(enumerate_transfers), numbered(exchange)
    remote = ~moved.is_local
    order = np.argsort(ids)
    sender, receiver = (
        order[np.searchsorted(ids[order], end[remote])] for end in (moved.sender, moved.receiver)
    )
    return sender, receiver, (moved.tensor[:, :, 1] - moved.tensor[:, :, 0])[remote]


def numbered(exchange: Exchange) -> Integers:
    """Return the device ids of an exchange, in the order of the devices' numbers in a kernel."""
    return ids_of(exchange.source.mesh) if exchange.same_order else exchange.ranks


def refuse_unreached(grid: Grid, plan: DirectPlan) -> None:
    """Raise InputError if some tiles cannot be sent directly and hops do not reach their
    receivers."""
    if not grid.reaches() and not grid.is_direct(*grid.pairs(moved(plan))):
        raise InputError(
            "some tiles must travel farther than one send reaches (a power of two of links along "
            "one axis), and devices in this order cannot forward them",
            argument="topology",
            got=f"{plan.prediction.topology}, device ids {_some(grid.ids)}",  # type: ignore[union-attr]
            expected="a mesh over whole or half axes of the torus, with device ids in the order of "
            "these axes; or no topology, if the module is for other chips",
        )


def _some(ids: Integers) -> str:
    listed = [str(number) for number in ids[:8].tolist()]
    return ", ".join(listed) + (", ..." if ids.size > 8 else "")
