"""The timeline of a TPU module: its kernels' sends, and XLA's copies around them.

HBM traffic is the average over devices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from shardwright.codegen.backends.pallas_tpu.phases import exchanges_of
from shardwright.codegen.backends.pallas_tpu.ring import RingForm
from shardwright.codegen.backends.pallas_tpu.strategy import choices, preferred
from shardwright.codegen.backends.pallas_tpu.terms import moved
from shardwright.codegen.moves.network.rings import Rings
from shardwright.codegen.moves.network.timeline import Copies, Stage, Timeline, cost_of
from shardwright.codegen.moves.plan import network_of
from shardwright.ir.exchange import ids_of
from shardwright.ir.plan import DirectPlan, Plan


def timeline(plan: Plan) -> Timeline:
    """Return the timeline of a direct plan's module: the stages of its exchanges, in sequence."""
    stages: list[Stage] = []
    for each in exchanges_of(plan):
        stages += _stages(each)
    meshes = plan.reshard.source.mesh, plan.reshard.target.mesh
    return Timeline(tuple(stages), np.union1d(*map(ids_of, meshes)))


def _stages(direct: DirectPlan) -> list[Stage]:
    ring = direct.once(ring_of) if direct.reshard.adds else None
    return _exchanged(direct) if ring is None else list(ring.stages())


def ring_of(direct: DirectPlan) -> RingForm | None:
    """Return the rings that reduce terms faster than one exchange would, or None."""
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
    """Return the rings of a reducing plan's module, or None. With `like`, the plan of another
    module, return rings only if that module has them."""
    first, other = exchanges_of(plan)[0], exchanges_of(plan if like is None else like)[0]
    if first is other:
        return first.once(ring_of)
    return None if other.once(ring_of) is None else RingForm.of(first)


def rings(plan: Plan) -> Rings | None:
    """Return the sends in the rings of a direct plan's module, or None if it has no rings."""
    form = rings_of(plan) if plan.strategy == "direct" and plan.reshard.adds else None
    return None if form is None else form.rings


def _exchanged(direct: DirectPlan) -> list[Stage]:
    choice, exchange = preferred(direct.once(choices)), moved(direct)
    reduces = bool(direct.exchange.operator)
    found = choice.form.stages(choice.figures, exchange, reduces=reduces)
    return [*found, *_reduced(direct)]


def _reduced(plan: DirectPlan) -> Iterator[Stage]:
    exchange = plan.exchange
    if exchange.operator:
        values = plan.reshard.itemsize * math.prod(exchange.target.local_shape)
        yield Copies("XLA reduces terms", (exchange.terms + 1) * values)
