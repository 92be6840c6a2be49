"""Planning: from a reshard to the steps that carry it out."""

from shardwright.codegen.planner.choose import STRATEGIES, plan

__all__ = ["STRATEGIES", "plan"]
