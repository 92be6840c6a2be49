"""The backends that can execute the plan of a strategy."""

from __future__ import annotations

from shardwright.codegen import registry
from shardwright.codegen.moves import STRATEGIES
from shardwright.codegen.operations.emit.choice import executed_by
from shardwright.ir.errors import InputError, one_of
from shardwright.ir.reshard import Reshard


def executing(strategy: str, reshard: Reshard) -> tuple[str, ...]:
    """Return the backends that support a strategy for a reshard. If the reshard reduces partial
    sums, the strategy must be in the backend's `reduces`. Otherwise it must be in the backend's
    `executes`; backends that execute only direct plans are left out."""
    return tuple(
        each.name
        for each in registry.every()
        if (
            strategy in each.reduces
            if reshard.adds
            else strategy in each.executes and each.executes != ("direct",)
        )
    )


def check_executed(strategy: str, backends: tuple[str, ...], reshard: Reshard) -> tuple[str, ...]:
    """Return the strategies from which `auto` may choose. Raises InputError for a strategy that a
    backend does not execute, and if backends reduce terms by different strategies."""
    known = executed_by(backends, reshard)
    if strategy in STRATEGIES[1:] and strategy not in known:
        lacking = ", ".join(b for b in backends if strategy not in executed_by([b], reshard))
        named = ", ".join(executing(strategy, reshard))
        raise InputError(
            "every backend must support the strategy",
            argument="strategy",
            got=f"{strategy} for {lacking}",
            expected=f"{one_of(('auto', *known))}, or backends {named}",
        )
    if not known:
        ways = (f"{name} ({', '.join(registry.backend(name).reduces)})" for name in backends)
        raise InputError(
            "all backends of a bundle must reduce partial sums in the same way",
            argument="backends",
            got=", ".join(ways),
            expected="a separate bundle for each backend",
        )
    return known
