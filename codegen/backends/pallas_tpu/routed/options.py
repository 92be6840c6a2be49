"""The schedules by which devices can forward an exchange, each with its slots.

routed    forward tiles in slots
relayed   forward aligned tiles, from source shards into target shards, without packing
gathered  forward whole source shards that are boxes of target shards
spread    forward other source shards in slots, copying them where routes diverge
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from shardwright.codegen.backends.pallas_tpu.facts import FORWARDING, FormFacts
from shardwright.codegen.backends.pallas_tpu.figures import relayout
from shardwright.codegen.backends.pallas_tpu.memory import views
from shardwright.codegen.backends.pallas_tpu.routed.gathered import (
    GATHERED,
    misplaced,
    views_in,
)
from shardwright.codegen.backends.pallas_tpu.routed.grid import Grid
from shardwright.codegen.backends.pallas_tpu.routed.relayed import RELAYED, unplaced
from shardwright.codegen.backends.pallas_tpu.routed.schedule import RoutedSchedule, busiest
from shardwright.codegen.backends.pallas_tpu.routed.schedule import routed as routed_schedule
from shardwright.codegen.backends.pallas_tpu.routed.schedule import spread as spread_schedule
from shardwright.codegen.backends.pallas_tpu.routed.slot import Shape, Slot
from shardwright.codegen.backends.pallas_tpu.routed.turns import Freight
from shardwright.codegen.backends.pallas_tpu.routed.ways import Ways
from shardwright.codegen.backends.pallas_tpu.slots import widest
from shardwright.ir.exchange import Exchange

ROUTED = FormFacts(
    name="routed",
    does="tiles go from device to device, in slots that XLA packs and unpacks",
    kernels=FORWARDING,
    buffers="places",
    forwards=True,
)
SPREAD = FormFacts(
    name="spread",
    does="source shards go from device to device, and XLA takes tiles out of them",
    kernels=FORWARDING,
    buffers="places",
    forwards=True,
    spreads=True,
)


@dataclass(frozen=True)
class Option:
    """A schedule, and the layout of the slots that are its places; `share`: see `Routed.share`."""

    facts: FormFacts
    slot: Slot
    schedule: RoutedSchedule
    share: float = 1.0


def options(
    exchange: Exchange, itemsize: int, grid: Grid, window: Shape, source_reach: Shape
) -> Iterator[Option]:
    """Yield the options to forward an exchange. With straight hops or lines, yield only those that
    forward tiles: whole shards would leave copies on every device along their routes.

    `window`: a shape in which every tile fits; `source_reach`: the extents of source shards, padded
    so that they contain every window.
    """
    offsets, senders = grid.offsets(exchange), grid.senders(exchange)
    if grid.on_lines and not senders:  # a ring would make the same moves
        return
    yield from _packed(itemsize, window, offsets, senders, grid)
    yield from _relayed(exchange, itemsize, offsets, senders, grid)
    if grid.straight or grid.on_lines:
        return
    yield from _gathered(exchange, itemsize, offsets, grid)
    for slot in Slot.every(source_reach, itemsize):
        for each in spreads(offsets, grid.ways, halves=slot.is_cut):
            yield Option(SPREAD, slot, *each)


def _gathered(
    exchange: Exchange, itemsize: int, offsets: tuple[int, ...], grid: Grid
) -> Iterator[Option]:
    for view in views_in(exchange, itemsize):
        slot = Slot.viewed(exchange.source.local_shape, itemsize, view)
        for schedule, share in spreads(offsets, grid.ways, halves=slot.is_cut):
            if not misplaced(schedule, grid.digits, exchange, view, itemsize):
                yield Option(GATHERED, slot, schedule, share)


def _relayed(
    exchange: Exchange,
    itemsize: int,
    offsets: tuple[int, ...],
    senders: tuple[tuple[int, ...], ...],
    grid: Grid,
) -> Iterator[Option]:
    held = exchange.target.local_shape
    found = (view for view in views(len(held)) if not unplaced(exchange, view, itemsize))
    view = min(found, key=lambda view: relayout(exchange, itemsize, view), default=None)
    if view is not None:
        tile = tuple(widest(exchange, axis) for axis in range(len(held)))
        slot = Slot.viewed(tile, itemsize, view)
        schedule = _scheduled(offsets, senders, slot, grid, apart=True, cut=len(view) > 1)
        yield Option(RELAYED, slot, schedule)


def _packed(
    itemsize: int,
    window: Shape,
    offsets: tuple[int, ...],
    senders: tuple[tuple[int, ...], ...],
    grid: Grid,
) -> Iterator[Option]:
    for slot in Slot.every(window, itemsize):
        yield Option(ROUTED, slot, _scheduled(offsets, senders, slot, grid))


def _scheduled(
    offsets: tuple[int, ...],
    senders: tuple[tuple[int, ...], ...],
    slot: Slot,
    grid: Grid,
    *,
    apart: bool = False,
    cut: bool = True,
) -> RoutedSchedule:
    """Return the schedule of tiles in slots. `apart`: whether a tile's first and last places are in
    its shards and used for no other tile; `cut`: whether halves may move separately. The TPU
    compiler (libtpu 0.0.42) rejects halves of a vector that shares a buffer with other vectors."""
    start = grid.torus.latency * grid.torus.bandwidth / slot.itemsize
    pieces = [
        Freight(
            offset,
            slot.elements,
            cut and slot.is_cut,
            senders[number] if senders else (),
            start,
        )
        for number, offset in enumerate(offsets)
    ]
    # Rounds overlap, but each adds one latency: its first message waits for an arrival.
    return routed_schedule(pieces, grid.ways, start, apart=apart)


def spreads(
    offsets: tuple[int, ...], ways: Ways, *, halves: bool
) -> Iterator[tuple[RoutedSchedule, float]]:
    """Yield schedules of source shards, each with the load on its busiest links relative to the
    first schedule. The first is the one with the lowest load. If `halves` may move separately, a
    second schedule sends them along the axes in opposite orders and ring directions; it is yielded
    if its load is lower."""
    ends = [(ways.in_order(axes), ways.in_order(axes[::-1])) for axes in ways.orders()]
    firsts = [ways.digits, *(first for first, _ in ends)]
    whole, most = _least((spread_schedule(offsets, first) for first in firsts), ways)
    yield whole, 1.0
    if halves:
        apart, least = _least((spread_schedule(offsets, *pair) for pair in ends), ways)
        if least < most:
            yield apart, least / most


def _least(every: Iterable[RoutedSchedule], ways: Ways) -> tuple[RoutedSchedule, float]:
    found = ((schedule, busiest(schedule, ways)) for schedule in every)
    return min(found, key=lambda pair: pair[1])
