"""Planning: from a reshard to the steps that perform it."""

from shardwright.codegen.planner.plan import STRATEGIES, plan

__all__ = ["STRATEGIES", "plan"]
