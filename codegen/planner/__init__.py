"""Planning: from a reshard to the steps that carry it out."""

from shardwright.codegen.planner.plan import STRATEGIES, plan

__all__ = ["STRATEGIES", "plan"]
