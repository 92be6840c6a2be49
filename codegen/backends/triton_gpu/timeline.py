"""The timeline of a Triton module under `torch.distributed`.

Within a host, devices read peers' shards directly. Each device copies the data that others need to
symmetric memory (callers can avoid this copy: `symmetric_source`, `symmetric_result`). Then all
devices wait at a barrier, pull their tiles, and wait again. Between hosts, tiles are packed,
exchanged by `all_to_all_single`, and unpacked, while each device makes its local copies. On a side
whose tiles are contiguous, tiles are not packed; if they are so on both sides, `batch_isend_irecv`
sends them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from shardwright.codegen.backends.triton_gpu.phases import exchanges_of, in_place
from shardwright.codegen.hardware.presets import topology_of
from shardwright.codegen.hardware.topology import Hierarchical, Torus
from shardwright.codegen.moves.holders import Loads
from shardwright.codegen.moves.network.flows import flows
from shardwright.codegen.moves.network.links import Flows
from shardwright.codegen.moves.network.timeline import Copies, Sends, Stage, Timeline
from shardwright.ir.arrays import Integers
from shardwright.ir.dtypes import DTYPES
from shardwright.ir.exchange import Exchange
from shardwright.ir.plan import Plan


def timeline(plan: Plan) -> Timeline:
    """Return the timeline of a direct plan's module: the stages of its exchanges, in sequence."""
    stages: tuple[Stage, ...] = ()
    for exchange in exchanges_of(plan):
        made = _of_exchange(plan, exchange)
        stages += made.stages
    return Timeline(stages, made.ids)


def _of_exchange(plan: Plan, exchange: Exchange) -> Timeline:
    itemsize = DTYPES[plan.reshard.dtype]
    ids = exchange.ranks
    loads = Loads(exchange.source, exchange.target, exchange)
    target = 2 * itemsize * math.prod(exchange.target.local_shape)
    sends = partial(flows, exchange, itemsize)
    if _is_one_host(plan, ids):
        meet = Sends("a barrier", partial(_next, ids), by="loads")
        pull = Sends("each device pulls its tiles", sends, target, by="loads")
        staged = 2 * itemsize * int(loads.leaving(exchange.rule).max(initial=0))
        return Timeline((Copies("what leaves, to symmetric memory", staged), meet, pull, meet), ids)
    sent, received, own = (
        2 * itemsize * int(elements.max(initial=0))
        for elements in (
            loads.sent(exchange.rule),
            loads.received(),
            loads.held_widths.prod(axis=1),
        )
    )
    ends = exchange.once(in_place)
    stages: list[Stage] = [
        Sends("batch_isend_irecv" if ends else "all_to_all_single", sends, own, by="collective"),
    ]
    if "source" not in ends:
        stages.insert(0, Copies("tiles are packed", sent))
    if "target" not in ends:
        stages.append(Copies("tiles are unpacked", received))
    return Timeline(tuple(stages), ids)


def _next(ids: Integers) -> Iterator[Flows]:
    """Yield the flows of a barrier: an empty message from every device to the next."""
    if ids.size > 1:
        yield Flows(ids, np.roll(ids, -1), np.zeros(ids.size))


def _is_one_host(plan: Plan, ids: Integers) -> bool:
    """Return whether all devices are on one host. Assume so without a topology, and for a topology
    without hosts unless it is a torus."""
    if plan.prediction is None:
        return True
    match topology_of(plan.prediction.topology):
        case Hierarchical(host_size=size):
            return bool((ids // size == ids[0] // size).all())
        case Torus():
            return False
        case _:
            return True
