"""Compute the cost of every form of the TPU kernel, and choose the cheapest.

TPU memory is tiled, and a DMA window must start and end at multiples of the tiling.

    direct    every tile is aligned to the tiling: DMA copies it from shard to shard
    windows   tiles start and end anywhere: chunks of them are shifted in VMEM
    slots     tiles are thin: XLA packs each densely into a slot, and unpacks it
    routed    devices forward tiles, in slots that XLA packs and unpacks (`routed/`)
    relayed   devices forward aligned tiles, from source to target shards without packing
    gathered  devices forward whole source shards that are aligned boxes of target shards
    spread    devices forward whole source shards, from which receivers extract tiles

In the first three forms every device sends directly to its receivers. The other forms are for
devices that cannot, or for detours that balance the load on links better (`routed/detours.py`). The
first two forms exist for each choice of the two dimensions over which memory is tiled
(`memory.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from shardwright.codegen.backends.pallas_tpu.direct import Direct
from shardwright.codegen.backends.pallas_tpu.figures import Figures, relayout
from shardwright.codegen.backends.pallas_tpu.memory import views
from shardwright.codegen.backends.pallas_tpu.pieces import Sums
from shardwright.codegen.backends.pallas_tpu.routed.detours import MOST_DEVICES, at_least
from shardwright.codegen.backends.pallas_tpu.routed.grid import Grid
from shardwright.codegen.backends.pallas_tpu.routed.schedule import Push
from shardwright.codegen.backends.pallas_tpu.routed.strategy import Routed
from shardwright.codegen.backends.pallas_tpu.routed.turns import WHOLE
from shardwright.codegen.backends.pallas_tpu.routed.ways import Hop
from shardwright.codegen.backends.pallas_tpu.slots import Slots
from shardwright.codegen.backends.pallas_tpu.stages import Form, stages_of
from shardwright.codegen.backends.pallas_tpu.terms import moved
from shardwright.codegen.backends.pallas_tpu.windows import Windows
from shardwright.codegen.hardware.chips import chip_of
from shardwright.codegen.hardware.presets import ICI_LATENCY, topology_of
from shardwright.codegen.hardware.topology import Switch, Topology, Torus
from shardwright.codegen.moves.network.links import Flows, Network
from shardwright.codegen.moves.network.timeline import Sends, Stage, Timeline, stage_costs
from shardwright.codegen.moves.plan import network_of
from shardwright.ir.dtypes import DTYPES
from shardwright.ir.exchange import Exchange
from shardwright.ir.plan import DirectPlan

ASSUMED = Switch(
    None,
    2 * chip_of("v5e:2x4").link_bandwidth,
    ICI_LATENCY,
    memory=chip_of("v5e:2x4").hbm_bandwidth,
)
"""The network on which forms are priced if no topology is given: a v5e's HBM, and two of its links
into each device, as in small slices. Source: `codegen/hardware/chips.py`."""


@dataclass(frozen=True)
class FormChoice:
    """A form, its traffic, and its predicted seconds. `straight`: if the form forwards although
    devices can send directly, the seconds of the best form that does not."""

    form: Form
    figures: Figures
    seconds: float
    straight: float | None = None

    @property
    def rank(self) -> tuple[float, ...]:
        """The sort key of forms: seconds, then bytes on the wire, then bytes of HBM traffic."""
        figures = self.figures
        return self.seconds, figures.wire_bytes, figures.hbm_bytes + figures.relayout_bytes


def grid_of(plan: DirectPlan) -> Grid | None:
    """Return the grid of a plan's devices, or None unless its topology is a torus whose devices
    send directly only over a power of two of links."""
    topology = _topology_of(plan)
    if not isinstance(topology, Torus) or not topology.powers_of_two:
        return None
    return Grid.of(moved(plan), topology)


def _topology_of(plan: DirectPlan) -> Topology | None:
    return None if plan.prediction is None else topology_of(plan.prediction.topology)


def choices(plan: DirectPlan) -> tuple[FormChoice, ...]:
    """Return every form that can move a plan's tiles, with its price."""
    itemsize, exchange = DTYPES[plan.reshard.dtype], moved(plan)
    grid, topology = plan.once(grid_of), _topology_of(plan)
    network = None if topology is None else network_of(plan.reshard, topology)
    reduces = bool(plan.exchange.operator)
    every = tuple(candidates(exchange, itemsize, grid, network, reduces=reduces))
    if grid is not None or not isinstance(topology, Torus) or not every:
        return every
    return *every, *_detours(plan, cheapest(every), topology)


def _detours(plan: DirectPlan, direct: FormChoice, torus: Torus) -> Iterator[FormChoice]:
    """Yield the forms with detours, for devices that can send to all their receivers directly.
    Yield nothing if detours cannot be faster than `direct` or there are too many devices."""
    exchange, itemsize = moved(plan), DTYPES[plan.reshard.dtype]
    if exchange.ranks.size > MOST_DEVICES or not direct.figures.wire_max:
        return
    if direct.seconds <= at_least(exchange, itemsize, torus):
        return
    grid, network = Grid.of(exchange, torus), Network(torus, torus.size)
    reduces = bool(plan.exchange.operator)
    for form in (form for each in _grids(grid) for form in Routed.every(exchange, itemsize, each)):
        yield replace(_priced(form, exchange, network, reduces=reduces), straight=direct.seconds)


def _grids(grid: Grid) -> Iterator[Grid]:
    """Yield the grids whose hops reach all devices: one with the hops of a v5e, and one with
    straight hops, each of which covers any distance along an axis."""
    if grid.reaches():
        yield grid
    straight = replace(grid, straight=True)
    if straight.reaches() and any(extent > 2 for _, extent in straight.digits):
        yield straight


def _priced(
    form: Form, exchange: Exchange, network: Network | None, copied: int = 0, *, reduces: bool
) -> FormChoice:
    """Return a form with its traffic and seconds. `copied`: the bytes of XLA's relayout copies, if
    the form's figures do not include them; `reduces`: whether XLA reduces the moved tiles."""
    figures = form.figures(exchange.once(Sums))
    figures = replace(figures, relayout_bytes=copied or figures.relayout_bytes)
    stages = tuple(stages_of(form, figures, exchange, reduces=reduces))
    if network is None:
        network, stages = Network(ASSUMED, 2), tuple(_unrouted(stages, figures))
    costs = stage_costs(Timeline(stages, exchange.ranks), network)
    return FormChoice(form, figures, sum(cost.seconds for cost in costs))


def _unrouted(stages: Iterable[Stage], figures: Figures) -> Iterator[Stage]:
    """Yield the stages as if the busiest device received everything over one link: without a
    topology, no routes are known."""
    there = np.ones(min(figures.wire_max, 1), dtype=np.int64)
    carried = Flows(there, 0 * there, figures.wire_max * there.astype(np.float64))
    for stage in stages:
        yield replace(stage, flows=lambda: (carried,)) if isinstance(stage, Sends) else stage


def cheapest(every: tuple[FormChoice, ...], like: Form | None = None) -> FormChoice:
    """Return the choice of lowest rank, the first of equals. With `like`, prefer forms of the same
    kind."""
    if isinstance(like, Routed):
        every = tuple(_cut_as(choice, like) for choice in every)
    alike = [choice for choice in every if like and _kind(choice.form) == _kind(like)]
    return min(alike or every, key=lambda choice: choice.rank)


def _cut_as(choice: FormChoice, like: Routed) -> FormChoice:
    form = choice.form
    return replace(choice, form=form.cut_as(like)) if isinstance(form, Routed) else choice


def _kind(form: Form) -> tuple[object, ...]:
    if not isinstance(form, Routed):
        return form.name, form.view
    apart = form.spreads and form.schedule.halves
    slot = form.slot
    kind = form.name, form.view, slot.order, slot.dense, apart
    return *kind, form.digits, form.lines


def candidates(
    exchange: Exchange,
    itemsize: int,
    grid: Grid | None = None,
    network: Network | None = None,
    *,
    reduces: bool = False,
) -> Iterator[FormChoice]:
    """Yield every form that can move the tiles of an exchange, priced, except forms with detours.

    `grid`: the devices, if some cannot send directly to all others; `network`: the network on which
    to price, by default that of the grid's torus, or `ASSUMED` without a grid; `reduces`: whether
    XLA reduces the moved tiles. A 64-bit element travels as two of 32 bits.
    """
    if grid is not None:
        network = network or Network(grid.torus, grid.torus.size)
        if not grid.is_direct(*grid.pairs(exchange)):
            for form in _forwarded(exchange, itemsize, grid):
                yield _priced(form, exchange, network, reduces=reduces)
            return
    for view in views(len(exchange.dims)):
        copied = relayout(exchange, itemsize, view)
        direct = Direct.of(exchange, itemsize, view)
        if direct is not None:
            yield _priced(direct, exchange, network, copied, reduces=reduces)
        windows = Windows.of(exchange.once(Sums), itemsize, view)
        yield _priced(windows, exchange, network, copied, reduces=reduces)
    slots = Slots.of(exchange, itemsize)
    if slots.is_small:
        yield _priced(slots, exchange, network, reduces=reduces)


def _forwarded(exchange: Exchange, itemsize: int, grid: Grid) -> Iterator[Routed]:
    """Yield the forwarding forms, for devices that cannot send to all their receivers directly;
    include forms with lines if an axis is one."""
    yield from Routed.every(exchange, itemsize, grid)
    lines = replace(grid, on_lines=True)
    if lines.numbering.lines and lines.reaches():
        yield from Routed.every(exchange, itemsize, lines)


def form_facts(choice: FormChoice, terms: int = 1) -> tuple[str, ...]:
    """Return the lines about a form for the module docstring; `terms`: the number of terms of a
    value, which XLA reduces if there are several."""
    figures = choice.figures
    hops = ", every hop counted" if isinstance(choice.form, Routed) else ""
    lines = [
        f"Form: {choice.form.name}; {choice.form.facts.does}.",
        f"The wire carries {figures.wire_padding:.3f} times the bytes of the tiles{hops}.",
        f"The busiest device receives {figures.wire_max:,} bytes, padding included.",
        f"HBM traffic is {figures.hbm_factor:.2f} times the least possible.",
    ]
    if isinstance(choice.form, Routed):
        lines += _route_facts(choice.form, choice)
    if figures.relayout_bytes:
        more = figures.relayout_bytes / figures.hbm_least
        lines.append(f"XLA's default shard layouts add copies of {more:.2f} times that least.")
    if choice.form.facts.in_place and figures.wire_bytes and terms == 1:
        lines.append("Where the result leaves the program XLA copies it once more.")
    if terms > 1:
        lines.append(f"Then XLA reduces: it reads {terms} terms of a target shard, and writes it.")
    if figures.staging_bytes or figures.vmem_bytes:
        used = f"; kernels use {figures.vmem_bytes:,} of VMEM" if figures.vmem_bytes else ""
        lines.append(f"The staging area has {figures.staging_bytes:,} bytes of HBM{used}.")
    return tuple(lines)


def _route_facts(form: Routed, choice: FormChoice) -> Iterator[str]:
    schedule = form.schedule
    why = "Not all receivers are in reach of a sender"
    if choice.straight is not None:
        yield "All receivers are in reach, but direct routes leave links idle, or make links carry"
        yield (
            f"tiles more than once: by the model {1e6 * choice.seconds:.4g} microseconds this way, "
            f"{1e6 * choice.straight:.4g} directly."
        )
        why = "So devices forward them"
    what = ("parts" if form.spreads else "tiles") if form.in_place else "slots"
    rounds = len(schedule.rounds)
    yield f"{why}: in {rounds} rounds a device sends on {len(schedule.moves)} {what},"
    apart = form.spreads and schedule.halves
    ways = f", by halves: {form.share:.2f} of the load" if apart else ""
    yield (
        f"of at most {form.itemsize * form.slot.elements:,} bytes, and receives its tiles from "
        f"{len(schedule.offsets)} devices{ways}."
    )
    if form.lines:
        yield from _about_lines(form)
    if not form.spreads:
        yield from _example(form)


def _about_lines(form: Routed) -> Iterator[str]:
    for stride, extent in (each for each in form.digits if each[0] in form.lines):
        last = extent // 2 - 1
        yield (
            f"Digit of stride {stride}: a line of {last + 1} devices; 1 to {last} go up it, "
            f"{extent - 1} to {extent - last} down."
        )


def _example(form: Routed) -> Iterator[str]:
    schedule = form.schedule
    far = max(range(len(schedule.starts)), key=lambda number: len(schedule.path(number)))
    first, second = (schedule.path(far, half) for half in WHOLE)
    apart = [hop for hop, _ in first] != [hop for hop, _ in second]
    half = "The first half of what" if apart else "What"
    yield f"{half} goes to the device {schedule.offsets[far]} farther on, digit by digit:"
    yield from _steps(first)
    if apart:
        yield "The second half:"
        yield from _steps(second)


def _steps(path: Sequence[tuple[Hop, Push]]) -> Iterator[str]:
    for hop, move in path:
        yield (
            f"    from slot {move.here} to slot {move.there} of the device whose digit of stride "
            f"{hop.stride} is {hop.by} higher"
        )
