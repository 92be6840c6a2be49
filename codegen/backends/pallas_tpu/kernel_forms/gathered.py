"""The gathered form: devices forward source shards from one target shard to the next.

If each device needs the whole source shards of its senders, it can forward them from its own target
shard to the same box of its receiver's. So no tiles are packed into slots or assembled: every place
of the schedule is a box of the target shard.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shardwright.codegen.backends.pallas_tpu.facts import FORWARDING, FormFacts
from shardwright.codegen.backends.pallas_tpu.form import Delivery
from shardwright.codegen.backends.pallas_tpu.kernel_forms.direct import Direct
from shardwright.codegen.backends.pallas_tpu.kernel_text import KernelRequest, ProgramText
from shardwright.codegen.backends.pallas_tpu.memory import View, tiling, views
from shardwright.codegen.backends.pallas_tpu.routed.grid import numbered
from shardwright.codegen.backends.pallas_tpu.routed.kernel import ForwardingKernel
from shardwright.codegen.backends.pallas_tpu.routed.options import Option, of_shards
from shardwright.codegen.backends.pallas_tpu.routed.schedule import RoutedSchedule
from shardwright.codegen.backends.pallas_tpu.routed.slot import Shape, Slot
from shardwright.codegen.backends.pallas_tpu.routed.text import ForwardText, Parts, at, forward_text
from shardwright.codegen.backends.pallas_tpu.routed.ways import Digits, added
from shardwright.ir.algebra.index import Integers
from shardwright.ir.exchange import Exchange, positions_of
from shardwright.ir.layout import DimLayout, Layout


class Gathered(ForwardingKernel):
    """The gathered form of an exchange."""

    facts: ClassVar[FormFacts] = FormFacts(
        name="gathered",
        rank=6,
        does="source shards go from device to device, each to its place in target shards",
        kernels=FORWARDING,
        buffers="shards",
        support=("pallas_aligned",),
        in_place=True,
        forwards=True,
        spreads=True,
    )
    held: ClassVar[str] = "The source shard."

    @classmethod
    def options(cls, delivery: Delivery, window: Shape, source_reach: Shape) -> Iterator[Option]:
        exchange, itemsize = delivery.exchange, delivery.itemsize
        assert delivery.grid is not None
        for view in views_in(exchange, itemsize):
            slot = Slot.viewed(exchange.source.local_shape, itemsize, view)
            for option in of_shards(delivery, slot):
                digits = delivery.grid.digits
                if not misplaced(option.schedule, digits, exchange, view, itemsize):
                    yield option

    def prove_places(self, exchange: Exchange, widths: Integers) -> None:
        wrong = misplaced(self.schedule, self.digits, exchange, self.view, self.itemsize)
        self.expect(not wrong, wrong)
        shape = tuple(exchange.source.local_shape[axis] for axis in self.view)
        self.expect(self.slot.shape == shape, "a source shard is not sent whole")

    def context(self, request: KernelRequest, program: ProgramText) -> GatheredText:
        parts = Parts(self)
        y = parts.split(request.exchange.target.local_shape)
        forward = forward_text(parts, len(y), at("x", parts.part()), request)
        where = (at("y", parts.inside(y, parts.columns, whole=whole)) for whole in (False, True))
        return GatheredText(forward, program, self.view, *where)


FORM = Gathered


@dataclass(frozen=True)
class GatheredText:
    """The context of the gathered form. `in_y`: the part of the target shard y that a move writes,
    as an expression; `whole_in_y`: the part of y that holds the device's own source shard."""

    forward: ForwardText
    program: ProgramText
    view: View
    in_y: str
    whole_in_y: str


def views_in(exchange: Exchange, itemsize: int) -> Iterator[View]:
    """Yield the dimension orders in which every tile is a whole, aligned source shard."""
    whole = all(tiles.source.is_even and tiles.spans[0] for tiles in exchange.dims)
    if not whole or exchange.rule.pieces > 1:
        return
    for view in views(len(exchange.dims)):
        if Direct.of(exchange, itemsize, view) is not None:
            yield view


def misplaced(
    schedule: RoutedSchedule, digits: Digits, exchange: Exchange, view: View, itemsize: int
) -> str:
    """Return why a schedule's places cannot be boxes of target shards, or "" if they can.

    On every device, the boxes must be distinct and aligned, and must fill the target shard. Devices
    that send to each other must have the same target shard, so that a box is in the same place on
    both.
    """
    ids, dims = numbered(exchange), exchange.dims
    held, wanted = (positions_of(side.mesh, ids) for side in (exchange.source, exchange.target))
    if (held < 0).any() or (wanted < 0).any():
        return "some devices are in one mesh only"
    low, high = _boxes(exchange.source, held)
    first, last = _boxes(exchange.target, wanted)
    sizes, room = (
        np.array([dim.size for dim in side.dims]) for side in (exchange.source, exchange.target)
    )
    if (high - low != sizes).any() or (last - first != room).any():
        return "some shards are short"
    units = np.ones(len(dims), dtype=np.int64)
    units[list(view[-2:])] = tiling(itemsize, len(view))
    places: list[Integers] = []
    for offset in offsets_of_places(schedule):
        receiver = added(np.arange(ids.size), offset, digits)
        if (first[receiver] != first).any():
            return "devices that send to each other have two target shards"
        start = low - first
        if (start < 0).any() or (start + sizes > room).any():
            return "a source shard is not in the target shard"
        aligned = (start % units == 0) & (sizes % units == 0)
        if not (aligned | (sizes == room)).all():
            return "a source shard is not aligned"
        number = np.ravel_multi_index(tuple(start.T), tuple(room.tolist()))
        places.append(_by_receiver(number, receiver))
    found = np.sort(np.stack(places), axis=0)
    if (found[1:] == found[:-1]).any():
        return "two source shards are in one place"
    # Boxes that start at multiples of their extents cannot overlap.
    if ((low - first) % sizes).any() or len(places) * math.prod(sizes) != math.prod(room):
        return "source shards do not fill the target shard"
    return ""


def offsets_of_places(schedule: RoutedSchedule) -> Sequence[int]:
    """Return the offset travelled by the data in each place of a schedule of source shards."""
    found = dict.fromkeys(schedule.starts, 0)
    for each in schedule.rounds:
        for sent in each.sends:
            for move in sent.moves:
                found[move.there] = int(sent.hop.to(np.array(found.get(move.here, 0))))
    return tuple(found[place] for place in sorted(found))


def _boxes(layout: Layout, position: Integers) -> tuple[Integers, Integers]:
    """Return the starts and the ends of the shards at positions, each as int64[positions, dims]."""
    low, high = zip(*(_ends(dim, position) for dim in layout.dims), strict=True)
    return np.stack(low, axis=1), np.stack(high, axis=1)


def _ends(dim: DimLayout, position: Integers) -> tuple[Integers, Integers]:
    low, high = (end[dim.index(position)] for end in dim.intervals)
    return low, high


def _by_receiver(values: Integers, receiver: Integers) -> Integers:
    found = np.empty_like(values)
    found[receiver] = values
    return found
