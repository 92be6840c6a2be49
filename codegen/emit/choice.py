"""The choice of a plan for the backends that carry it out: `plan` shows what `emit` writes."""

from __future__ import annotations

from collections.abc import Iterable

from shardwright.codegen.backends import registry
from shardwright.codegen.backends.registry import DEFAULT_BACKENDS
from shardwright.codegen.emit.verdict import price_of
from shardwright.codegen.hardware.topology import Topology
from shardwright.codegen.planner import STRATEGIES
from shardwright.codegen.planner import plan as plan_of
from shardwright.codegen.planner.plan import network_of
from shardwright.codegen.spec.description import Description
from shardwright.ir.errors import InputError, check_type, wrong_type
from shardwright.ir.plan import Plan
from shardwright.ir.reshard import Reshard


def plan(
    reshard: Reshard,
    strategy: str = "auto",
    *,
    topology: str | Topology | None = None,
    memory_limit: int | None = None,
    backends: tuple[str, ...] = DEFAULT_BACKENDS,
) -> Plan:
    """Return the plan of a reshard, whether the backends take it or not.

    `auto` is the plan whose modules take least on the topology, of the strategies that all backends
    execute (for terms, all that take terms); without a topology the one that moves least.
    `topology` is a text as `v5e:4x4` or `h100:2x8` (`codegen/hardware/presets.py`), a TOML file, or
    a Topology. `memory_limit`: bytes of the tensor that a device may hold at once. Raises
    InputError for an unknown strategy or backend, or a strategy that cannot do it, a topology that
    lacks devices, and a limit below what source and target take together.
    """
    check_type(reshard, Reshard, "Reshard(shape, dtype, source, target)", "reshard")
    names = checked(backends)
    if reshard.source.unreduced or reshard.target.unreduced:
        reducing = tuple(each.name for each in registry.every() if each.reduces)
        names = tuple(name for name in names if name in reducing) or reducing
    price = None
    if topology is not None and strategy == "auto":
        price = price_of(names, network_of(reshard, topology))
    return plan_of(
        reshard,
        strategy,
        topology=topology,
        memory_limit=memory_limit,
        among=executed_by(names),
        price=price,
    )


def planned(description: Description) -> Plan:
    """Return the plan of a description, whether its backends take it or not."""
    return plan(
        description.reshard(),
        description.strategy,
        topology=description.topology,
        memory_limit=description.memory_limit,
        backends=description.backends,
    )


def executed_by(backends: Iterable[str]) -> tuple[str, ...]:
    """Return the strategies that every one of the backends executes."""
    each = [registry.backend(name).executes for name in backends]
    return tuple(s for s in STRATEGIES[1:] if all(s in known for known in each))


def checked(given: object) -> tuple[str, ...]:
    """Return the backends in the order of the registry, whatever order they are named in."""
    known = registry.NAMES
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise wrong_type(given, tuple, f'("{known[1]}",)', "backends")
    backends = tuple(given)
    for backend in backends:
        registry.check_name(backend)
    if not backends or len(set(backends)) < len(backends):
        raise InputError(
            "each backend is named once",
            argument="backends",
            got=", ".join(backends) or "none",
            expected="one or more of " + ", ".join(known),
        )
    return tuple(backend for backend in known if backend in backends)
