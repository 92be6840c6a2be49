"""The direct plan: one exchange, in which each device receives the elements that it lacks, once.

Without partial sums, no plan moves fewer bytes. With partial sums, this is true only if target
shards have no replicas: each replica receives and reduces all partial sums.
"""

from __future__ import annotations

from dataclasses import replace

from shardwright.codegen.moves.basis.traffic import traffic_of
from shardwright.codegen.moves.holders import Loads, choose_rule
from shardwright.codegen.moves.memory import check_limit, held_in_exchange
from shardwright.codegen.moves.network.flows import flows
from shardwright.codegen.moves.network.links import Network
from shardwright.ir.dtypes import DTYPES
from shardwright.ir.exchange import HolderRule
from shardwright.ir.plan import DirectPlan, Prediction, Traffic
from shardwright.ir.reshard import Reshard
from shardwright.ir.steps import ExchangeStep


def plan_direct(
    reshard: Reshard,
    rule: HolderRule | None = None,
    *,
    network: Network | None = None,
    memory_limit: int | None = None,
) -> DirectPlan:
    """Return the direct plan of a reshard.

    `rule`: the holder rule, by default the best one. `network`: the network for the prediction,
    None for no prediction. `memory_limit`: the maximum bytes on a device at any time. Raises
    InputError for a limit below the shards that a device must hold at once.
    """
    if memory_limit is not None:
        check_limit(reshard, memory_limit)
    loads = Loads.of(reshard)
    chosen = rule or choose_rule(loads)
    exchange = replace(loads.exchange, rule=chosen)
    if reshard.adds:
        traffic = traffic_of(reshard, (ExchangeStep(exchange),))
    else:
        traffic = _traffic(loads, chosen, DTYPES[reshard.dtype])
    prediction = None
    if network is not None:
        seconds = network.collective_seconds(network.total(flows(exchange, DTYPES[reshard.dtype])))
        peak = held_in_exchange(reshard)
        prediction = Prediction(
            str(network.topology), seconds, (seconds,), None, peak, memory_limit
        )
    return DirectPlan(reshard=reshard, exchange=exchange, traffic=traffic, prediction=prediction)


def _traffic(loads: Loads, rule: HolderRule, itemsize: int) -> Traffic:
    received = loads.received()
    most, total = int(received.max()) * itemsize, int(received.sum()) * itemsize
    sent = int(loads.sent(rule).max()) * itemsize
    return Traffic(most, total, sent, most, total, loads.bound_sent_max() * itemsize)
