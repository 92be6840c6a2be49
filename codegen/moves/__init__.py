"""Plan reshards and matmuls: choose the steps that perform them."""

from shardwright.codegen.moves.plan import STRATEGIES, plan

__all__ = ["STRATEGIES", "plan"]
