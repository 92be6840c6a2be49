"""Choose a plan for the backends that execute it. `plan` shows the plan that `emit` uses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import overload

from shardwright.codegen import registry
from shardwright.codegen.hardware.topology import Topology
from shardwright.codegen.moves import STRATEGIES
from shardwright.codegen.moves import plan as plan_of
from shardwright.codegen.moves.matmul.plan import WAYS, plan_matmul
from shardwright.codegen.moves.plan import network_of
from shardwright.codegen.operations.emit.verdict import price_of
from shardwright.codegen.registry import DEFAULT_BACKENDS, MULTIPLYING
from shardwright.codegen.spec.description import Description
from shardwright.ir.errors import InputError, check_type, known_arguments, one_of
from shardwright.ir.matmul import Matmul
from shardwright.ir.matmul_plan import MatmulPlan
from shardwright.ir.plan import Plan
from shardwright.ir.relayout import Relayout, RelayoutPlan, plan_relayout
from shardwright.ir.reshard import Reshard


@overload
def plan(
    what: Reshard,
    strategy: str = "auto",
    *,
    topology: str | Topology | None = None,
    memory_limit: int | None = None,
    backends: tuple[str, ...] = DEFAULT_BACKENDS,
) -> Plan: ...
@overload
def plan(what: Relayout) -> RelayoutPlan: ...
@overload
def plan(
    what: Matmul,
    *,
    topology: str | Topology | None = None,
    backends: tuple[str, ...] = MULTIPLYING,
    loop: str | None = None,
) -> MatmulPlan: ...
@known_arguments
def plan(
    what: Reshard | Matmul | Relayout,
    strategy: str = "auto",
    *,
    topology: str | Topology | None = None,
    memory_limit: int | None = None,
    backends: tuple[str, ...] | None = None,
    loop: str | None = None,
) -> Plan | MatmulPlan | RelayoutPlan:
    """Plan a reshard, even if some backend refuses the plan, or a matmul. For a relayout, which
    takes no other arguments, return its minimum bytes.

    `auto` is the plan with the fastest modules on the topology, among the strategies, or a matmul's
    loops, that all backends execute; without a topology, the plan that moves the fewest bytes.
    `backends`: by default those for which `emit` emits. `topology` is a
    string such as `v5e:4x4` or `h100:2x8` (`codegen/hardware/presets.py`), a TOML file, or a
    Topology. `memory_limit`: bytes of the tensor that a device may hold at once. `loop`, of a
    matmul: whether parts move while devices multiply, "one" or "both" directions round a ring,
    "pulled" by a kernel, "never", or "auto". Raises InputError for an unknown strategy or backend,
    an unsuitable strategy, a topology that lacks devices, and a limit that is too small.
    """
    if isinstance(what, Relayout):
        given = {"strategy": strategy, "topology": topology, "loop": loop}
        takes_none("relayout", memory_limit=memory_limit, **given)
        return plan_relayout(what)
    if isinstance(what, Matmul):
        takes_none("matmul", strategy=strategy, memory_limit=memory_limit)
        among = loops_of(checked(MULTIPLYING if backends is None else backends))
        return plan_matmul(what, topology, loop=loop or "auto", among=among)
    if loop is not None:
        raise InputError(
            "loop applies only to a Matmul",
            argument="loop",
            got=f"{loop!r} for a {type(what).__name__}",
            expected="a Matmul; leave out loop otherwise",
        )
    names = DEFAULT_BACKENDS if backends is None else backends
    return plan_reshard(
        what, strategy, topology=topology, memory_limit=memory_limit, backends=names
    )


def takes_none(what: str, **given: object) -> None:
    """Raise InputError if an operation other than a reshard gets an argument that only reshards
    take."""
    for argument, got in given.items():
        if got not in ("auto", None):
            raise InputError(
                f"a {what} takes no {argument}",
                argument=argument,
                got=got,
                expected=f"no {argument}, or a Reshard",
            )


def plan_reshard(
    reshard: Reshard,
    strategy: str = "auto",
    *,
    topology: str | Topology | None = None,
    memory_limit: int | None = None,
    backends: tuple[str, ...] = DEFAULT_BACKENDS,
) -> Plan:
    """Plan a reshard as `plan` does, with the same arguments and errors."""
    check_type(reshard, Reshard, "Reshard(shape, dtype, source, target)", "reshard")
    names = checked(backends)
    price = None
    if topology is not None and strategy == "auto":
        price = price_of(names, network_of(reshard, topology))
    return plan_of(
        reshard,
        strategy,
        topology=topology,
        memory_limit=memory_limit,
        among=executed_by(names, reshard),
        in_two=_in_two(names, reshard),
        price=price,
    )


def _in_two(names: Iterable[str], reshard: Reshard) -> bool:
    meshes = reshard.source.mesh, reshard.target.mesh
    one_order = meshes[0].device_ids == meshes[1].device_ids
    known = {"never": False, "in one order": one_order, "always": True}
    return all(known[registry.backend(name).in_two] for name in names)


def planned(description: Description) -> Plan:
    """Return the plan of a description, even if its backends refuse it."""
    return plan_reshard(
        description.reshard(),
        description.strategy,
        topology=description.topology,
        memory_limit=description.memory_limit,
        backends=description.backends,
    )


def executed_by(backends: Iterable[str], reshard: Reshard) -> tuple[str, ...]:
    """Return the strategies that all the backends execute for a reshard. If the reshard reduces
    partial sums, return the strategies with which all the backends reduce them."""
    found = (registry.backend(name) for name in backends)
    each = [one.reduces if reshard.adds else one.executes for one in found]
    return tuple(s for s in STRATEGIES[1:] if all(s in known for known in each))


def loops_of(backends: Iterable[str]) -> tuple[str, ...]:
    """Return the loops of matmuls that all the backends execute."""
    each = [registry.backend(name).loops for name in backends]
    return tuple(way for way in (*WAYS, "pulled") if all(way in known for known in each))


def checked(given: object) -> tuple[str, ...]:
    """Return the backends in registry order. Raises InputError if there are none, or if one is
    repeated or unknown."""
    known = registry.NAMES
    backends = registry.listed(given)
    if not backends or len(set(backends)) < len(backends):
        raise InputError(
            "give at least one backend, and each only once",
            argument="backends",
            got=", ".join(backends) or "none",
            expected="one or more of " + ", ".join(known),
        )
    return tuple(backend for backend in known if backend in backends)


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
