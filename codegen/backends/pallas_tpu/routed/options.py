"""The schedules by which an exchange can be forwarded, each with the slots that it takes.

routed    tiles, in slots
relayed   tiles that are aligned, out of source shards into target shards
gathered  source shards that are parts of target shards
spread    other source shards, in slots, copied on the way
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from shardwright.codegen.backends.pallas_tpu.figures import relayout
from shardwright.codegen.backends.pallas_tpu.memory import views
from shardwright.codegen.backends.pallas_tpu.routed.gathered import misplaced, views_in
from shardwright.codegen.backends.pallas_tpu.routed.grid import Grid
from shardwright.codegen.backends.pallas_tpu.routed.relayed import unplaced
from shardwright.codegen.backends.pallas_tpu.routed.schedule import RoutedSchedule, busiest
from shardwright.codegen.backends.pallas_tpu.routed.schedule import routed as routed_schedule
from shardwright.codegen.backends.pallas_tpu.routed.schedule import spread as spread_schedule
from shardwright.codegen.backends.pallas_tpu.routed.slot import Shape, Slot
from shardwright.codegen.backends.pallas_tpu.routed.turns import Freight
from shardwright.codegen.backends.pallas_tpu.routed.ways import Ways
from shardwright.codegen.backends.pallas_tpu.slots import widest
from shardwright.ir.exchange import Exchange

Name = Literal["routed", "relayed", "gathered", "spread"]


@dataclass(frozen=True)
class Option:
    """A schedule and its slots; `share` is that of `Routed`."""

    name: Name
    slot: Slot
    schedule: RoutedSchedule
    share: float = 1.0


def options(
    exchange: Exchange, itemsize: int, grid: Grid, window: Shape, source_reach: Shape
) -> Iterator[Option]:
    """Yield the ways to forward an exchange; with straight hops, or on lines, only the ways that
    forward tiles, because shards leave copies on every device on their way. `window`: the shape
    that fits a tile; `source_reach`: the reach of windows into source shards."""
    offsets, senders = grid.offsets(exchange), grid.senders(exchange)
    if grid.on_lines and not senders:  # a ring form does the same
        return
    yield from _packed(itemsize, window, offsets, senders, grid)
    yield from _relayed(exchange, itemsize, offsets, senders, grid)
    if grid.straight or grid.on_lines:
        return
    yield from _gathered(exchange, itemsize, offsets, grid)
    for slot in Slot.every(source_reach, itemsize):
        for each in spreads(offsets, grid.ways, halves=slot.is_cut):
            yield Option("spread", slot, *each)


def _gathered(
    exchange: Exchange, itemsize: int, offsets: tuple[int, ...], grid: Grid
) -> Iterator[Option]:
    """Yield the schedules of source shards with boxes of target shards as places."""
    for view in views_in(exchange, itemsize):
        slot = Slot.viewed(exchange.source.local_shape, itemsize, view)
        for schedule, share in spreads(offsets, grid.ways, halves=slot.is_cut):
            if not misplaced(schedule, grid.digits, exchange, view, itemsize):
                yield Option("gathered", slot, schedule, share)


def _relayed(
    exchange: Exchange,
    itemsize: int,
    offsets: tuple[int, ...],
    senders: tuple[tuple[int, ...], ...],
    grid: Grid,
) -> Iterator[Option]:
    """Yield the schedule of tiles moved between shards without packing, in the dimension order with
    the fewest relayouts."""
    held = exchange.target.local_shape
    found = (view for view in views(len(held)) if not unplaced(exchange, view, itemsize))
    view = min(found, key=lambda view: relayout(exchange, itemsize, view), default=None)
    if view is not None:
        tile = tuple(widest(exchange, axis) for axis in range(len(held)))
        slot = Slot.viewed(tile, itemsize, view)
        schedule = _scheduled(offsets, senders, slot, grid, apart=True, cut=len(view) > 1)
        yield Option("relayed", slot, schedule)


def _packed(
    itemsize: int,
    window: Shape,
    offsets: tuple[int, ...],
    senders: tuple[tuple[int, ...], ...],
    grid: Grid,
) -> Iterator[Option]:
    """Yield the schedules of tiles in slots."""
    for slot in Slot.every(window, itemsize):
        yield Option("routed", slot, _scheduled(offsets, senders, slot, grid))


def _scheduled(
    offsets: tuple[int, ...],
    senders: tuple[tuple[int, ...], ...],
    slot: Slot,
    grid: Grid,
    *,
    apart: bool = False,
    cut: bool = True,
) -> RoutedSchedule:
    """Return the schedule of pieces in slots, or with places `apart` for both ends; `cut`: whether
    halves may move separately, which the TPU compiler (libtpu 0.0.42) rejects for a vector among
    others in one buffer."""
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
    # No round waits for the previous one, but its first message waits for an arrival.
    return routed_schedule(pieces, grid.ways, start, apart=apart)


def spreads(
    offsets: tuple[int, ...], ways: Ways, *, halves: bool
) -> Iterator[tuple[RoutedSchedule, float]]:
    """Yield the schedule of source shards with the least load on the busiest links; and one in
    which halves use reversed axis orders and ring directions, if that lowers the load, with the
    saving."""
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
