"""The stages of a plain JAX module: XLA's collectives, as the module requests them.

Between collectives, XLA cuts boxes out of the source shard and writes them into the target shard.
On a TPU it also changes the layout of shards around collectives, views small floats as integers,
and copies a result that leaves the program (`moves/network/passes.py`). On a GPU only the passes
over boxes count, which the module itself cuts and places.

On a CPU a collective is a copy too, and all other passes over memory count. Its HLO (jax 0.10.2)
has these passes:

    result    one pass writes it, even if a device only cuts out its part
    boxes     each round takes a pass over the whole target shard, in which XLA selects between
              received and existing data
    rows      if a gather, an all-to-all or a sum cuts or joins the last dimension, XLA reorders
              shards before and after it, element by element: a byte takes as long as a word
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import assert_never

import numpy as np

from shardwright.codegen.backends.jax_steps.blocks import Collectives
from shardwright.codegen.backends.jax_steps.plan import Steps, is_stepwise, steps_of
from shardwright.codegen.backends.jax_terms import ends_of
from shardwright.codegen.backends.jax_xla.boxes import Boxes
from shardwright.codegen.backends.jax_xla.context import boxes_of, how_of
from shardwright.codegen.backends.jax_xla.fetches import Fetches
from shardwright.codegen.backends.jax_xla.groups import Groups
from shardwright.codegen.backends.jax_xla.laid import is_small_float, laid_by, moves_floats
from shardwright.codegen.backends.jax_xla.ragged import Ragged
from shardwright.codegen.backends.jax_xla.rounds import Rounds, each_round
from shardwright.codegen.backends.jax_xla.transport import How
from shardwright.codegen.moves.basis.boxed import layouts_of, rounds_of
from shardwright.codegen.moves.memory import shard_bytes
from shardwright.codegen.moves.network.links import Flows
from shardwright.codegen.moves.network.passes import Passes, passes_of
from shardwright.codegen.moves.network.timeline import Copies, Sends, Stage, Timeline
from shardwright.codegen.moves.xla import Collective
from shardwright.codegen.text.context import as_vectors
from shardwright.ir.dtypes import DTYPES
from shardwright.ir.exchange import Exchange, ids_of
from shardwright.ir.plan import DirectPlan, Plan, direct_of
from shardwright.ir.reshard import Reshard
from shardwright.ir.steps import Step

PERMUTE = "collective-permute"
PADDED = 4
"""The most pieces that a TPU concatenates as the maximum of padded pieces, in a pass after the one
that cuts them. It cuts and concatenates more pieces in one pass (jax 0.10.2, libtpu 0.0.42)."""
WORD = 4
"""The fewest bytes that a CPU moves per element."""


def timeline(plan: Plan) -> Timeline:
    if is_stepwise(plan):
        return _of_steps(plan, plan.once(steps_of))
    direct = direct_of(plan)
    exchange, size = as_vectors(direct.exchange), DTYPES[plan.reshard.dtype]
    ids = ids_of(exchange.source.mesh) if exchange.same_order else exchange.ranks
    stages = tuple(_stages(direct, exchange, size, ids))
    passes = _passes(plan, direct.once(how_of), exchange)
    return Timeline((*stages, *passes, *_on_processor(plan, stages)), ids)


def _on_processor(plan: Plan, stages: Sequence[Stage]) -> Iterator[Stage]:
    reshard = plan.reshard
    source, target = shard_bytes(reshard)
    yield Copies("the result is written", 2.0 * target, on_processor=True)
    collectives = {stage.op for stage in stages if isinstance(stage, Collective)} - {PERMUTE}
    if collectives and _cuts_rows(reshard):
        nbytes = 2.0 * max(WORD, reshard.itemsize) / reshard.itemsize * (source + target)
        yield Copies("rows are cut and joined", nbytes, on_processor=True)


def _cuts_rows(reshard: Reshard) -> bool:
    sides = (reshard.source, reshard.target)
    if any(math.prod(side.local_shape(reshard.shape)[:-1]) == 1 for side in sides):
        return False
    before, after = (side.dims[-1].axes for side in sides)
    return before != after


def relaid(plan: Plan) -> int:
    """Return the bytes of the passes over memory that a TPU would make around the collectives of a
    plan of several steps, if XLA had chosen these collectives itself and did not view floats as
    integers."""
    reshard = plan.reshard
    elements = math.prod(reshard.source.local_shape(reshard.shape))
    laid = tuple(laid_by(plan.once(steps_of), ends_of(plan)))
    return sum(passes_of(laid, elements, reshard.itemsize, as_bits=False))


def _passes(plan: Plan, how: How, exchange: Exchange) -> Iterator[Stage]:
    reshard, laid = plan.reshard, tuple(laid_by(how, exchange))
    as_bits = is_small_float(reshard) and not moves_floats(reshard, how, exchange)
    elements = math.prod(reshard.source.local_shape(reshard.shape))
    found: Passes = passes_of(laid, elements, reshard.itemsize, as_bits)
    if found.staying:
        yield Copies("XLA changes the layout of shards", found.staying, on_tpu=True)
    if found.leaving:
        what = "XLA copies a result that leaves the program"
        yield Copies(what, found.leaving, leaving=True, on_tpu=True)


def _stages(plan: DirectPlan, exchange: Exchange, size: int, ids: np.ndarray) -> Iterator[Stage]:
    how: How = plan.once(how_of)
    source, target = (
        2.0 * size * math.prod(side.local_shape) for side in (exchange.source, exchange.target)
    )
    match how:
        case Collectives(asked=asked):
            yield from asked
        case Groups(members=members, groups=groups, join=join):
            nbytes = size * members * math.prod(join.window)
            yield Copies("boxes are cut", 2.0 * nbytes)
            if how.pieces <= PADDED:
                cut = size * how.cuts * math.prod(join.window)
                more = min(source / 2, cut) + 2 * cut - nbytes
                yield Copies("boxes are put in a row", more, on_tpu=True)
            yield Collective("all-to-all", nbytes, list(map(list, groups)))
            if join.lines_of_rows[:-1]:  # needs more than a reshape
                yield Copies("boxes are joined", target)
        case Fetches():
            yield from _fetched(how, size)
        case Rounds():
            boxes, whole = plan.once(boxes_of)
            rounds = each_round(exchange, boxes, whole)
            if boxes.window != exchange.source.local_shape:
                cut = size * sum(each.elements for each in rounds if each.cuts)
                yield Copies("boxes are cut", min(source / 2, cut) + cut)
            permutes = [each for each in rounds if each.pairs]
            for each in permutes:
                yield Collective(PERMUTE, size * each.elements, each.pairs)
            if boxes.window != exchange.target.local_shape:
                put = sum(each.elements for each in rounds)
                yield Copies("boxes are put in place", 2.0 * size * put)
                yield from _put_again(len(permutes), target)
        case Ragged():
            yield Sends(
                "ragged-all-to-all", partial(_rows, how, exchange, size, ids), by="collective"
            )
        case Steps():
            raise AssertionError("steps are not one exchange")
        case _:
            assert_never(how)


def _fetched(how: Fetches, size: int) -> Iterator[Stage]:
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
    """Yield the flows of the boxes' rows; the padding of rows counts as bytes on the wire."""
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
    passes = _passes(plan, how, ends_of(plan))
    return Timeline((*stages, *passes, *_on_processor(plan, stages)), ids)


def _boxed(step: Step, size: int, ids: np.ndarray) -> Iterator[Stage]:
    for rounds in rounds_of(step, ids):
        cut, placed = np.zeros((2, ids.size))
        target = 2.0 * size * math.prod(layouts_of(step)[1].local_shape)
        for each in rounds:
            cut[[*each.sent]] += each.elements
            placed[[*each.taken]] += each.elements
        yield Copies("boxes are cut", 2.0 * size * float(cut.max()))
        for each in rounds:
            if each.away:
                yield Collective(PERMUTE, size * each.elements, each.away)
        yield Copies("boxes are put in place", 2.0 * size * float(placed.max()))
        yield from _put_again(sum(bool(each.away) for each in rounds), target)


def _put_again(rounds: int, target: float) -> Iterator[Stage]:
    """Yield the passes over the target shard that a CPU makes for every round after the first."""
    if rounds > 1:
        yield Copies("boxes of each round", (rounds - 1) * target, on_processor=True)
