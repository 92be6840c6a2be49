"""The stages of a Triton module under `torch.distributed`.

Within a host, peers' shards are read directly: the parts that others need are staged in symmetric
memory (callers can avoid this: `symmetric_source`, `symmetric_result`), all meet at a barrier,
every device pulls its tiles, and all meet again. Between hosts, or if the topology does not define
hosts, tiles are packed, exchanged by `all_to_all_single`, and unpacked, while a device makes its
local copies. At an end with contiguous tiles nothing is packed: they go by `batch_isend_irecv`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from shardwright.codegen.backends.triton_gpu.phases import exchanges_of, in_place
from shardwright.codegen.hardware.presets import topology_of
from shardwright.codegen.hardware.topology import Hierarchical, Torus
from shardwright.codegen.planner.holders import Loads
from shardwright.codegen.planner.network.flows import flows
from shardwright.codegen.planner.network.links import Flows
from shardwright.codegen.planner.network.timeline import Copies, Sends, Stage, Timeline
from shardwright.ir.arrays import Integers
from shardwright.ir.dtypes import DTYPES
from shardwright.ir.exchange import Exchange
from shardwright.ir.plan import Plan


def timeline(plan: Plan) -> Timeline:
    """Return the stages of the module of a direct plan."""
    stages: tuple[Stage, ...] = ()
    for exchange in exchanges_of(plan):
        made = _of_exchange(plan, exchange)
        stages += made.stages
    return Timeline(stages, made.ids)


def _of_exchange(plan: Plan, exchange: Exchange) -> Timeline:
    """Return the stages of one exchange."""
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
    """Yield an empty message from every device to the next."""
    if ids.size > 1:
        yield Flows(ids, np.roll(ids, -1), np.zeros(ids.size))


def _is_one_host(plan: Plan, ids: Integers) -> bool:
    """Return whether all devices are on one host, which is assumed without a topology."""
    if plan.prediction is None:
        return True
    match topology_of(plan.prediction.topology):
        case Hierarchical(host_size=size):
            return bool((ids // size == ids[0] // size).all())
        case Torus():
            return False
        case _:
            return True
