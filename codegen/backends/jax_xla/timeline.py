"""What a module of plain JAX does, stage by stage: collectives of XLA's, as it asks for them.

Beside them XLA cuts boxes out of the source shard and puts them into the target shard; of shards
that collectives take and give as they are, nothing is copied but what a transpose takes, which is
not counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import assert_never

import numpy as np

from shardwright.codegen.backends.jax_xla.boxes import Boxes
from shardwright.codegen.backends.jax_xla.collectives import Collectives
from shardwright.codegen.backends.jax_xla.context import boxes_of, how_of
from shardwright.codegen.backends.jax_xla.fetches import Fetches
from shardwright.codegen.backends.jax_xla.groups import Groups
from shardwright.codegen.backends.jax_xla.ragged import Ragged
from shardwright.codegen.backends.jax_xla.rounds import Rounds, permutes_of
from shardwright.codegen.backends.jax_xla.steps.plan import Steps, is_stepwise, steps_of
from shardwright.codegen.backends.jax_xla.transport import How
from shardwright.codegen.emit.context import as_vectors
from shardwright.codegen.planner.basis.boxed import rounds_of
from shardwright.codegen.planner.network.links import Flows
from shardwright.codegen.planner.network.timeline import Copies, Sends, Stage, Timeline
from shardwright.codegen.planner.xla import Collective
from shardwright.ir.dtypes import DTYPES
from shardwright.ir.exchange import Exchange, ids_of
from shardwright.ir.plan import DirectPlan, Plan, direct_of
from shardwright.ir.steps import Step

PERMUTE = "collective-permute"


def timeline(plan: Plan) -> Timeline:
    """Return the stages of the module of a plan."""
    if is_stepwise(plan):
        return _of_steps(plan, plan.once(steps_of))
    direct = direct_of(plan)
    exchange, size = as_vectors(direct.exchange), DTYPES[plan.reshard.dtype]
    ids = ids_of(exchange.source.mesh) if exchange.same_order else exchange.ranks
    return Timeline(tuple(_stages(direct, exchange, size, ids)), ids)


def _stages(plan: DirectPlan, exchange: Exchange, size: int, ids: np.ndarray) -> Iterator[Stage]:
    how: How = plan.once(how_of)
    source, target = (
        2.0 * size * math.prod(side.local_shape) for side in (exchange.source, exchange.target)
    )
    match how:
        case Collectives(asked=asked):
            yield from asked
        case Groups(members=members, groups=groups, join=join):
            yield Copies("boxes are cut", source)
            nbytes = size * members * math.prod(join.window)
            yield Collective("all-to-all", nbytes, list(map(list, groups)))
            if join.lines_of_rows[:-1]:  # more than a reshape
                yield Copies("boxes are joined", target)
        case Fetches():
            yield from _fetched(how, size)
        case Rounds():
            boxes, whole = plan.once(boxes_of)
            if boxes.window != exchange.source.local_shape:
                yield Copies("boxes are cut", source)
            for elements, pairs in permutes_of(exchange, boxes, whole):
                yield Collective(PERMUTE, size * elements, pairs)
            if boxes.window != exchange.target.local_shape:
                yield Copies("boxes are put in place", target)
        case Ragged():
            yield Sends(
                "ragged-all-to-all", partial(_rows, how, exchange, size, ids), by="collective"
            )
        case Steps():
            raise AssertionError("steps are not one exchange")
        case _:
            assert_never(how)


def _fetched(how: Fetches, size: int) -> Iterator[Stage]:
    """Yield the permute, and a gather along each dimension."""
    nbytes = size * math.prod(how.join.window)
    if how.permutes:
        pairs = [[sender, rank] for rank, sender in enumerate(how.senders) if sender != rank]
        yield Collective(PERMUTE, nbytes, pairs)
    counts = [count for count in how.join.grid if count > 1]
    axes = [axis for axis, count in enumerate(how.join.grid) if count > 1]
    ranks = np.array(how.groups).reshape(-1, *counts)
    for dim in how.dimensions:
        place = axes.index(dim)
        nbytes *= counts[place]
        along = np.moveaxis(ranks, 1 + place, -1).reshape(-1, counts[place])
        yield Collective("all-gather", nbytes, along.tolist())


def _rows(how: Ragged, exchange: Exchange, size: int, ids: np.ndarray) -> Iterator[Flows]:
    """Yield the rows of all boxes; what a row takes is in the bytes on the wire."""
    boxes = Boxes.of(exchange)
    away = ~boxes.local
    rows = boxes.shape[away, how.axis] / how.unit
    received = np.bincount(boxes.receiver[away], rows)
    row = how.wire[0] * size / max(float(received.max(initial=0.0)), 1.0)
    yield Flows(ids[boxes.sender[away]], ids[boxes.receiver[away]], rows * row)


def _of_steps(plan: Plan, how: Steps) -> Timeline:
    same = plan.reshard.source.mesh.device_ids == plan.reshard.target.mesh.device_ids
    ids = ids_of(plan.reshard.source.mesh)
    ids = ids if same else np.sort(ids)
    stages: list[Stage] = []
    for block, step in zip(how.blocks, plan.listed(), strict=True):
        stages += block.asked if block.boxes is None else _boxed(step, plan.reshard.itemsize, ids)
    return Timeline(tuple(stages), ids)


def _boxed(step: Step, size: int, ids: np.ndarray) -> Iterator[Stage]:
    """Yield the rounds of a step by boxes."""
    for rounds in rounds_of(step, ids):
        cut, placed = np.zeros((2, ids.size))
        for each in rounds:
            cut[[*each.sent]] += each.elements
            placed[[*each.taken]] += each.elements
        yield Copies("boxes are cut", 2.0 * size * float(cut.max()))
        for each in rounds:
            if each.away:
                yield Collective(PERMUTE, size * each.elements, each.away)
        yield Copies("boxes are put in place", 2.0 * size * float(placed.max()))
