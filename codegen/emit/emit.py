"""Emission: from a reshard, a plan or a description to its bundle."""

from __future__ import annotations

from collections.abc import Iterable

from shardwright.codegen.emit.bundle import Bundle
from shardwright.codegen.spec.description import DEFAULT_BACKENDS, Description
from shardwright.ir.errors import InputError, one_of, wrong_type
from shardwright.ir.plan import Plan
from shardwright.ir.reshard import Reshard


def emit(
    what: Plan | Reshard,
    backends: tuple[str, ...] = DEFAULT_BACKENDS,
    strategy: str = "auto",
    topology: str | None = None,
    memory_limit: int | None = None,
) -> Bundle:
    """The bundle of a reshard, or of a plan of it.

    Raises InputError for an unknown backend and where a backend refuses the plan. `strategy` and
    what it is chosen by are for a reshard, of which only strategies count that every backend
    executes; a plan has one, and its bundle says "auto" where auto makes the same plan.
    """
    from shardwright.codegen.backends.registry import BACKENDS
    from shardwright.codegen.planner import plan as plan_of
    from shardwright.codegen.planner.plan import check_executed

    backends = _checked(backends, tuple(BACKENDS))
    among = check_executed("auto" if isinstance(what, Plan) else strategy, backends)
    if isinstance(what, Plan):
        plan = what
        if plan.prediction is not None:
            topology, memory_limit = plan.prediction.topology, plan.prediction.memory_bytes
        auto = plan_of(plan.reshard, topology=topology, memory_limit=memory_limit, among=among)
        strategy = "auto" if auto == plan else plan.strategy
    else:
        plan = plan_of(what, strategy, topology=topology, memory_limit=memory_limit, among=among)
    for backend in backends:
        BACKENDS[backend].refuse(plan)
    return Bundle(plan, backends, strategy, topology, memory_limit)


def emit_described(description: Description) -> Bundle:
    """The bundle of a description."""
    return emit(
        description.reshard(),
        description.backends,
        description.strategy,
        description.topology,
        description.memory_limit,
    )


def planned(description: Description) -> Plan:
    """The plan of a description, whether its backends take it or not."""
    from shardwright.codegen.planner import plan as plan_of
    from shardwright.codegen.planner.plan import executed_by

    return plan_of(
        description.reshard(),
        description.strategy,
        topology=description.topology,
        memory_limit=description.memory_limit,
        among=executed_by(description.backends),
    )


def _checked(given: object, known: tuple[str, ...]) -> tuple[str, ...]:
    """The backends in the order of `known`, so that the order they are named in is no matter."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise wrong_type(given, tuple, '("triton_gpu",)', "backends")
    backends = tuple(given)
    for backend in backends:
        if backend not in known:
            raise InputError(
                "no such backend", argument="backends", got=backend, expected=one_of(known)
            )
    if not backends or len(set(backends)) < len(backends):
        raise InputError(
            "each backend is named once",
            argument="backends",
            got=", ".join(backends) or "none",
            expected="one or more of " + ", ".join(known),
        )
    return tuple(backend for backend in known if backend in backends)
