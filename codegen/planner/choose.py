"""The choice of a strategy."""

from __future__ import annotations

from shardwright.codegen.planner.direct import plan_direct
from shardwright.ir.errors import InputError, check_type
from shardwright.ir.plan import Plan
from shardwright.ir.reshard import Reshard

# `auto` takes the strategy that moves least; an exchange reaches the lower bound.
STRATEGIES = ("auto", "direct")


def plan(reshard: Reshard, strategy: str = "auto") -> Plan:
    """The plan of a reshard. Raises InputError for an unknown strategy or one that cannot do it."""
    check_type(reshard, Reshard, "Reshard(shape, dtype, source, target)", "reshard")
    if strategy not in STRATEGIES:
        raise InputError(
            "no such strategy", argument="strategy", got=strategy, expected=" or ".join(STRATEGIES)
        )
    return plan_direct(reshard)
