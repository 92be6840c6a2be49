"""The derivation of a reshard's tiles, in formulas and in numbers."""

from __future__ import annotations

from shardwright.codegen.facts import facts
from shardwright.codegen.planner import plan
from shardwright.ir.reshard import Reshard


def derivation(reshard: Reshard) -> str:
    """How the tiles of a reshard follow from its two shardings."""
    return "\n".join(facts(plan(reshard)))
