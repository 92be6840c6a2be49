"""What a TPU module does, stage by stage: what its kernels send and what XLA copies beside them.

HBM is counted a device, on average over all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from itertools import groupby
from typing import assert_never

import numpy as np

from shardwright.codegen.backends.pallas_tpu.direct import Direct
from shardwright.codegen.backends.pallas_tpu.figures import Figures
from shardwright.codegen.backends.pallas_tpu.phases import exchanges_of
from shardwright.codegen.backends.pallas_tpu.pieces import Sums
from shardwright.codegen.backends.pallas_tpu.ring import RingForm
from shardwright.codegen.backends.pallas_tpu.routed.strategy import Routed
from shardwright.codegen.backends.pallas_tpu.slots import Slots
from shardwright.codegen.backends.pallas_tpu.strategy import cheapest, choices, grid_of
from shardwright.codegen.backends.pallas_tpu.terms import moved
from shardwright.codegen.backends.pallas_tpu.windows import Windows
from shardwright.codegen.planner.network.flows import flows
from shardwright.codegen.planner.network.links import Flows
from shardwright.codegen.planner.network.rings import Rings
from shardwright.codegen.planner.network.timeline import (
    Copies,
    Sends,
    Stage,
    Timeline,
    cost_of,
)
from shardwright.codegen.planner.plan import network_of
from shardwright.ir.algebra.index import Integers
from shardwright.ir.exchange import ids_of
from shardwright.ir.plan import DirectPlan, Plan


def timeline(plan: Plan) -> Timeline:
    """Return the stages of the module of a direct plan: those of its exchanges, one after
    another."""
    stages: list[Stage] = []
    for each in exchanges_of(plan):
        stages += _stages(each)
    meshes = plan.reshard.source.mesh, plan.reshard.target.mesh
    return Timeline(tuple(stages), np.union1d(*map(ids_of, meshes)))


def _stages(direct: DirectPlan) -> list[Stage]:
    """Return the stages of one exchange, or of the rings in its place."""
    ring = direct.once(ring_of) if direct.reshard.adds else None
    return _exchanged(direct) if ring is None else list(ring.stages())


def ring_of(direct: DirectPlan) -> RingForm | None:
    """Return the rings that reduce terms in less time than one exchange, None where there are
    none."""
    ring = RingForm.of(direct)
    if ring is None:
        return None
    assert direct.prediction is not None
    network, ids = network_of(direct.reshard, direct.prediction.topology), direct.exchange.ranks
    ways = (
        cost_of(Timeline(tuple(each), ids), network).seconds
        for each in (ring.stages(), _exchanged(direct))
    )
    return ring if next(ways) < next(ways) else None


def rings_of(plan: Plan, like: Plan | None = None) -> RingForm | None:
    """Return the rings of the module of a plan that reduces terms, None where it has none; `like`:
    the plan of another module, which has some where this one should."""
    first, other = exchanges_of(plan)[0], exchanges_of(plan if like is None else like)[0]
    if first is other:
        return first.once(ring_of)
    return None if other.once(ring_of) is None else RingForm.of(first)


def rings(plan: Plan) -> Rings | None:
    """Return the rings of the module of a direct plan, step by step, None where it has none."""
    form = rings_of(plan) if plan.strategy == "direct" and plan.reshard.adds else None
    return None if form is None else form.rings


def _exchanged(direct: DirectPlan) -> list[Stage]:
    choice, exchange = cheapest(direct.once(choices)), moved(direct)
    form, figures, devices = choice.form, choice.figures, exchange.ranks.size
    sums = exchange.once(Sums)
    stages: list[Stage] = []
    if figures.relayout_bytes:
        stages.append(Copies("XLA lays shards out", figures.relayout_bytes / devices))
    match form:
        case Direct() | Windows() | Slots():
            stages += _sent(form, figures, sums, devices, reduces=bool(direct.exchange.operator))
        case Routed():
            grid = direct.once(grid_of)
            assert grid is not None
            stages += _routed(form, figures, grid.ids)
        case _:
            assert_never(form)
    return [*stages, *_reduced(direct)]


def _sent(
    form: Direct | Windows | Slots, figures: Figures, sums: Sums, devices: int, *, reduces: bool
) -> Iterator[Stage]:
    """Yield what comes before the kernel that sends, that, and what comes after it."""
    exchange, itemsize = sums.exchange, form.itemsize
    sends = partial(flows, exchange, itemsize, form.taken)
    result = 2 * itemsize * math.prod(exchange.target.local_shape)
    match form:
        case Direct():
            yield Sends("tiles by DMA", sends, figures.hbm_bytes / devices)
            if figures.wire_bytes and not reduces:
                yield Copies("XLA copies the result", result)
        case Windows():
            first, after = form.traffic(sums)
            yield Sends("chunks of tiles", sends, first / devices)
            yield Copies("the result from the staging area", after / devices)
        case Slots():
            first, within, after = form.traffic(sums)
            yield Copies("XLA packs slots", first / devices)
            yield Sends("slots by DMA", sends, within / devices)
            yield Copies("XLA unpacks slots", after / devices)
        case _:
            assert_never(form)


def _reduced(plan: DirectPlan) -> Iterator[Stage]:
    """Yield what XLA does with the terms that have come: it reads all, and writes values."""
    exchange = plan.exchange
    if exchange.operator:
        values = plan.reshard.itemsize * math.prod(exchange.target.local_shape)
        yield Copies("XLA reduces terms", (exchange.terms + 1) * values)


def _routed(form: Routed, figures: Figures, ids: Integers) -> Iterator[Stage]:
    """Yield the rounds: in each, every device sends what it has for its hops."""
    rest = figures.hbm_bytes - 2 * form.itemsize * form.sent
    yield Copies("XLA packs slots and unpacks them", rest / ids.size)
    for turn, some in groupby(form.hops(), key=lambda each: each[0]):
        parts = tuple(
            _messages(ids[device], ids[hop.to(device)], form.itemsize * size)
            for _, hop, size, device in some
        )
        sent = sum(float(part.weight.sum()) for part in parts)
        what = f"round {turn + 1} of {len(form.schedule.rounds)}"
        yield Sends(what, partial(tuple, parts), 2 * sent / ids.size)


def _messages(sender: Integers, receiver: Integers, nbytes: int) -> Flows:
    """Return messages of one size."""
    return Flows(sender, receiver, np.full(sender.size, float(nbytes)))
