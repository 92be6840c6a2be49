"""The direct plan: one exchange in which every device receives exactly what it lacks, once."""

from __future__ import annotations

from dataclasses import replace

from shardwright.codegen.planner.holders import Loads, choose_rule
from shardwright.codegen.planner.memory import check_limit, held_at_once
from shardwright.codegen.planner.network.flows import flows
from shardwright.codegen.planner.network.links import Network
from shardwright.ir.dtypes import DTYPES
from shardwright.ir.errors import InputError
from shardwright.ir.exchange import HolderRule
from shardwright.ir.plan import DirectPlan, Prediction, Traffic
from shardwright.ir.reshard import Reshard


def plan_direct(
    reshard: Reshard,
    rule: HolderRule | None = None,
    *,
    network: Network | None = None,
    memory_limit: int | None = None,
) -> DirectPlan:
    """Return the exchange of a reshard; `rule` overrides the choice of holders, `network` prices
    it.

    Raises InputError where the target lacks an unreduced axis of the source: an exchange moves
    values, it does not add them.
    """
    if reshard.adds:
        raise InputError(
            "an exchange moves values and cannot reduce terms",
            argument="source",
            got=str(reshard.source),
            expected="the same unreduced axes in the target, or strategy basis",
        )
    if memory_limit is not None:
        check_limit(reshard, memory_limit)
    loads = Loads.of(reshard)
    chosen = rule or choose_rule(loads)
    traffic = _traffic(loads, chosen, DTYPES[reshard.dtype])
    exchange = replace(loads.exchange, rule=chosen)
    prediction = None
    if network is not None:
        seconds = network.seconds(network.total(flows(exchange, DTYPES[reshard.dtype])))
        peak = held_at_once(reshard)
        prediction = Prediction(
            str(network.topology), seconds, (seconds,), None, peak, memory_limit
        )
    return DirectPlan(reshard=reshard, exchange=exchange, traffic=traffic, prediction=prediction)


def _traffic(loads: Loads, rule: HolderRule, itemsize: int) -> Traffic:
    received = loads.received()
    most, total = int(received.max()) * itemsize, int(received.sum()) * itemsize
    sent = int(loads.sent(rule).max()) * itemsize
    return Traffic(most, total, sent, most, total, loads.bound_sent_max() * itemsize)
