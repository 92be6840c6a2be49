"""How each backend's modules reduce partial sums, for `plan` and bundles."""

from __future__ import annotations

from collections.abc import Iterable

from shardwright.codegen import registry
from shardwright.codegen.moves.network.rings import Rings
from shardwright.ir.errors import InputError
from shardwright.ir.plan import DirectPlan, Plan
from shardwright.ir.plan_json import format_plan


def rings_by(plan: Plan, names: Iterable[str]) -> dict[str, Rings]:
    """Return the rings on which modules reduce terms, by backend; omit backends without rings."""
    found = {}
    for name in _taking(plan, names):
        rings = registry.backend(name).rings(plan)
        if rings is not None:
            found[name] = rings
    return found


def reduced_by(plan: Plan, names: Iterable[str]) -> dict[str, str]:
    """Say in words how each backend's module reduces partial sums. Return nothing for a plan
    without partial sums."""
    taking = _taking(plan, names) if plan.reshard.adds else ()
    rings = rings_by(plan, taking)
    return {name: _words(plan, rings.get(name)) for name in taking}


def _taking(plan: Plan, names: Iterable[str]) -> tuple[str, ...]:
    found = []
    for name in names:
        try:
            registry.backend(name).refuse(plan)
        except InputError:
            continue
        found.append(name)
    return tuple(found)


def _words(plan: Plan, rings: Rings | None) -> str:
    if plan.strategy == "basis":
        return f"collectives: {plan.ops}"
    copies = "" if isinstance(plan, DirectPlan) else ", then an exchange of parts"
    if rings is not None:
        return f"rings along {', then '.join(rings.along)}{copies}"
    return "exchanges, of terms of parts and then of parts" if copies else "an exchange of terms"


def plan_json(plan: Plan, names: Iterable[str], transfers: bool | None = None) -> str:
    """Return the output of `plan --json`: the plan, and how backends reduce its sums."""
    ways = reduced_by(plan, names)
    if not ways:
        return plan.to_json(transfers)
    return format_plan({**plan.to_dict(transfers), "reduced_by": ways})
