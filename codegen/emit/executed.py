"""Which strategies backends execute, and which backends a strategy."""

from __future__ import annotations

from collections.abc import Iterable

from shardwright.codegen.backends import registry
from shardwright.codegen.planner.plan import STRATEGIES
from shardwright.ir.errors import InputError, one_of
from shardwright.ir.reshard import Reshard


def executed_by(backends: Iterable[str]) -> tuple[str, ...]:
    """Return the strategies that every one of the backends executes."""
    each = [registry.backend(name).executes for name in backends]
    return tuple(s for s in STRATEGIES[1:] if all(s in known for known in each))


def executing(strategy: str) -> tuple[str, ...]:
    """Return the backends that execute more than direct plans and execute this strategy."""
    return tuple(
        each.name
        for each in registry.every()
        if strategy in each.executes and each.executes != ("direct",)
    )


def check_executed(strategy: str, backends: tuple[str, ...]) -> tuple[str, ...]:
    """Return what `auto` may choose from. Raise InputError for a strategy that a backend does not
    execute."""
    known = executed_by(backends)
    if strategy in STRATEGIES[1:] and strategy not in known:
        lacking = ", ".join(b for b in backends if strategy not in executed_by([b]))
        raise InputError(
            "every backend must execute the strategy",
            argument="strategy",
            got=f"{strategy} for {lacking}",
            expected=f"{one_of(('auto', *known))}, or --backends {','.join(executing(strategy))}",
        )
    return known


def check_reduces(reshard: Reshard, backends: tuple[str, ...]) -> None:
    """Raise InputError where there are terms on a side and a backend does not take them."""
    lacking = [name for name in backends if not registry.backend(name).reduces]
    sides = ("source", reshard.source, "reduce"), ("target", reshard.target, "make")
    for argument, side, verb in sides:
        if side.unreduced and lacking:
            reducing = " and ".join(each.name for each in registry.every() if each.reduces)
            raise InputError(
                f"{' and '.join(lacking)} cannot {verb} terms",
                argument=argument,
                got=str(side),
                expected=f"a {argument} without unreduced axes, or no backend but {reducing}",
            )
