"""Compute the cost of every form of the TPU kernel, and choose one.

TPU memory is tiled, and a DMA window must start and end at multiples of the tiling. So the forms in
`kernel_forms/` differ in how they move tiles that do not. Some forms forward tiles over other
devices: for devices that cannot send directly to every receiver, or for detours that balance the
load on links better (`routed/detours.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np

from shardwright.codegen.backends.pallas_tpu.all_forms import FORMS
from shardwright.codegen.backends.pallas_tpu.figures import Figures
from shardwright.codegen.backends.pallas_tpu.form import Delivery, Form
from shardwright.codegen.backends.pallas_tpu.pieces import Sums
from shardwright.codegen.backends.pallas_tpu.routed.detours import MOST_DEVICES, at_least
from shardwright.codegen.backends.pallas_tpu.routed.grid import Grid
from shardwright.codegen.backends.pallas_tpu.terms import moved
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

MARGIN = 0.1
"""The largest fraction by which a form may be slower than the fastest one and still be chosen for
its fewer lines. Predictions are not exact to a tenth: they rest on published rates and on estimates
such as `CHUNK_SECONDS`, and no form has been timed on a TPU. A reviewer reads every line."""


@dataclass(frozen=True)
class FormChoice:
    """A form, its traffic, and its predicted seconds. `straight`: if the form forwards although
    devices can send directly, the seconds of the fastest form that does not."""

    form: Form
    figures: Figures
    seconds: float
    straight: float | None = None

    @property
    def cost(self) -> tuple[float, ...]:
        """The seconds, then the bytes on the wire, then the bytes of HBM traffic."""
        figures = self.figures
        return self.seconds, figures.wire_bytes, figures.hbm_bytes + figures.relayout_bytes

    @property
    def reading(self) -> tuple[float, ...]:
        """The sort key of forms that are about as fast: their place by lines of code, then their
        cost."""
        return self.form.facts.rank, *self.cost


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
    return *every, *_detours(plan, fastest(every), topology)


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
    deliveries = (Delivery(exchange, itemsize, each) for each in _grids(grid))
    for form in (form for delivery in deliveries for form in _forms_for(delivery)):
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
    form: Form, exchange: Exchange, network: Network | None, *, reduces: bool
) -> FormChoice:
    """Return a form with its traffic and seconds; `reduces`: whether XLA reduces the moved
    tiles."""
    figures = form.figures(exchange.once(Sums))
    stages = tuple(form.stages(figures, exchange, reduces=reduces))
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


def fastest(every: Iterable[FormChoice]) -> FormChoice:
    """Return the choice of lowest cost, the first of equals."""
    return min(every, key=attrgetter("cost"))


def preferred(every: tuple[FormChoice, ...], like: Form | None = None) -> FormChoice:
    """Return the form to emit: of the forms that are at most `MARGIN` slower than the fastest, the
    one with the fewest lines to read, at its lowest cost. With `like`, prefer forms of the same
    kind."""
    if like is not None:
        every = tuple(replace(choice, form=choice.form.like(like)) for choice in every)
        every = tuple(each for each in every if each.form.kind == like.kind) or every
    most = (1 + MARGIN) * fastest(every).seconds
    return min((each for each in every if each.seconds <= most), key=attrgetter("reading"))


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
    deliveries = [Delivery(exchange, itemsize)]
    if grid is not None:
        network = network or Network(grid.torus, grid.torus.size)
        if not grid.is_direct(*grid.pairs(exchange)):
            deliveries = [Delivery(exchange, itemsize, each) for each in _with_lines(grid)]
    for form in (form for delivery in deliveries for form in _forms_for(delivery)):
        yield _priced(form, exchange, network, reduces=reduces)


def _forms_for(delivery: Delivery) -> Iterator[Form]:
    """Yield every kernel that can make a delivery."""
    forwards = delivery.grid is not None
    for form in FORMS:
        if form.facts.forwards == forwards:
            yield from form.every(delivery)


def _with_lines(grid: Grid) -> Iterator[Grid]:
    """Yield the grid and, if an axis is a line, the grid in which it counts as one."""
    yield grid
    lines = replace(grid, on_lines=True)
    if lines.numbering.lines and lines.reaches():
        yield lines


def form_facts(choice: FormChoice, terms: int = 1) -> tuple[str, ...]:
    """Return the lines about a form for the module docstring; `terms`: the number of terms of a
    value, which XLA reduces if there are several."""
    figures = choice.figures
    hops = ", every hop counted" if choice.form.facts.forwards else ""
    lines = [
        f"Form: {choice.form.name}; {choice.form.facts.does}.",
        f"The wire carries {figures.wire_padding:.3f} times the bytes of the tiles{hops}.",
        f"The busiest device receives {figures.wire_max:,} bytes, padding included.",
        f"HBM traffic is {figures.hbm_factor:.2f} times the least possible.",
    ]
    lines += choice.form.route_facts(choice.seconds, choice.straight)
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
