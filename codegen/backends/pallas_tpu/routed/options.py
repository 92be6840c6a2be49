"""The schedules by which devices can forward an exchange."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from shardwright.codegen.backends.pallas_tpu.form import Delivery
from shardwright.codegen.backends.pallas_tpu.routed.schedule import RoutedSchedule, busiest
from shardwright.codegen.backends.pallas_tpu.routed.schedule import routed as routed_schedule
from shardwright.codegen.backends.pallas_tpu.routed.schedule import spread as spread_schedule
from shardwright.codegen.backends.pallas_tpu.routed.slot import Slot
from shardwright.codegen.backends.pallas_tpu.routed.turns import Freight
from shardwright.codegen.backends.pallas_tpu.routed.ways import Ways


@dataclass(frozen=True)
class Option:
    """A schedule, and the layout of the slots that are its places; `share`: see
    `strategy.ForwardingForm`."""

    slot: Slot
    schedule: RoutedSchedule
    share: float = 1.0


def of_tiles(delivery: Delivery, slot: Slot, *, apart: bool = False, cut: bool = True) -> Option:
    """Return the schedule of tiles in slots. `apart`: whether a tile's first and last places are in
    its shards and used for no other tile; `cut`: whether halves may move separately. The TPU
    compiler (libtpu 0.0.42) rejects halves of a vector that shares a buffer with other vectors."""
    grid, senders = delivery.grid, delivery.senders
    assert grid is not None
    start = grid.torus.latency * grid.torus.bandwidth / slot.itemsize
    pieces = [
        Freight(
            offset,
            slot.elements,
            cut and slot.is_cut,
            senders[number] if senders else (),
            start,
        )
        for number, offset in enumerate(delivery.offsets)
    ]
    # Rounds overlap, but each adds one latency: its first message waits for an arrival.
    return Option(slot, routed_schedule(pieces, grid.ways, start, apart=apart))


def of_shards(delivery: Delivery, slot: Slot) -> Iterator[Option]:
    """Yield the schedules of source shards in slots."""
    assert delivery.grid is not None
    for schedule, share in spreads(delivery.offsets, delivery.grid.ways, halves=slot.is_cut):
        yield Option(slot, schedule, share)


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
