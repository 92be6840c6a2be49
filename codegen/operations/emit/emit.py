"""Emission: turn whatever has modules into its bundle of files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import overload

from shardwright.codegen import registry
from shardwright.codegen.operations.emit.choice import checked, takes_none
from shardwright.codegen.operations.emit.matmul import MatmulBundle, emit_matmul
from shardwright.codegen.operations.emit.model_bundle import ModelBundle, emit_model
from shardwright.codegen.operations.emit.program import ProgramBundle, emit_program
from shardwright.codegen.operations.emit.relayout import RelayoutBundle, emit_relayout
from shardwright.codegen.operations.emit.reshard import Bundle, emit_reshard
from shardwright.codegen.partition.partitioned import Partitioned
from shardwright.codegen.registry import DEFAULT_BACKENDS, MULTIPLYING
from shardwright.codegen.spec.features import (
    check_features,
    check_matmul_features,
    read_features,
)
from shardwright.ir.errors import InputError, known_arguments
from shardwright.ir.matmul import Matmul
from shardwright.ir.matmul_plan import MatmulPlan
from shardwright.ir.model_plan import ModelPlan
from shardwright.ir.plan import Plan
from shardwright.ir.relayout import Relayout, RelayoutPlan
from shardwright.ir.reshard import Reshard


@overload
def emit(
    what: Plan | Reshard,
    backends: tuple[str, ...] | None = None,
    strategy: str = "auto",
    topology: str | None = None,
    memory_limit: int | None = None,
    *,
    gradient: bool = False,
    single_file: bool = False,
    collective_id: int | None = None,
    features: Iterable[str] = (),
) -> Bundle: ...
@overload
def emit(
    what: Matmul | MatmulPlan,
    backends: tuple[str, ...] | None = None,
    *,
    topology: str | None = None,
    loop: str | None = None,
    gradient: bool = False,
    single_file: bool = False,
    features: Iterable[str] = (),
) -> MatmulBundle: ...
@overload
def emit(what: Partitioned, *, topology: str | None = None) -> ProgramBundle: ...
@overload
def emit(
    what: Relayout | RelayoutPlan,
    backends: tuple[str, ...] | None = None,
    *,
    gradient: bool = False,
) -> RelayoutBundle: ...
@overload
def emit(what: ModelPlan, backends: tuple[str, ...] | None = None) -> ModelBundle: ...
@known_arguments
def emit(
    what: Plan | Reshard | Matmul | MatmulPlan | Partitioned | Relayout | RelayoutPlan | ModelPlan,
    backends: tuple[str, ...] | None = None,
    strategy: str = "auto",
    topology: str | None = None,
    memory_limit: int | None = None,
    *,
    loop: str | None = None,
    gradient: bool = False,
    single_file: bool = False,
    collective_id: int | None = None,
    features: Iterable[str] = (),
) -> Bundle | MatmulBundle | ProgramBundle | RelayoutBundle | ModelBundle:
    """Return the bundle of a reshard, a matmul, a relayout, a plan of any of these or of a model,
    or a partitioned function.

    `backends`: by default `DEFAULT_BACKENDS`; `jax_xla` for a matmul; all for a relayout; all that
    can emit models for a model. The other options are for reshards and matmuls only; `gradient` is
    also for relayouts. `gradient`: emit derivatives; without it, modules raise for a tensor that
    requires a gradient. `single_file`: include support modules in each module, so that it can be
    copied alone. `loop`: see `plan`. `collective_id`: a multiple of four; no other kernel of a TPU
    program may use it or the three ids after it. `features`: optional parts of modules, including
    "gradient" (docs/config.md).

    Raises InputError for an unknown backend and if a backend refuses the plan. `strategy` and the
    options that decide it apply only to a reshard, and only strategies that every backend executes
    are considered. A plan already has a strategy; its bundle has the strategy "auto" if `auto`
    makes the same plan.
    """
    asked = read_features(tuple(features))
    gradient = gradient or "gradient" in asked
    others = {
        "strategy": strategy,
        "memory_limit": memory_limit,
        "loop": loop,
        "gradient": gradient or None,
        "single_file": single_file or None,
        "collective_id": collective_id,
        "features": asked or None,
    }
    if isinstance(what, Partitioned):
        takes_none("partitioned function", backends=backends, **others)
        return emit_program(what, topology)
    if isinstance(what, Relayout | RelayoutPlan | ModelPlan):
        name = "plan of a model" if isinstance(what, ModelPlan) else "relayout"
        if isinstance(what, ModelPlan):
            takes_none(name, topology=topology, **others)
            return emit_model(what, backends)
        takes_none(name, topology=topology, **others | {"gradient": None})
        names = registry.NAMES if backends is None else backends
        return emit_relayout(what, names, gradient=gradient)
    if isinstance(what, Matmul | MatmulPlan):
        takes_none("matmul", strategy=strategy, memory_limit=memory_limit)
        check_matmul_features(asked)
        return emit_matmul(
            what,
            MULTIPLYING if backends is None else backends,
            topology,
            loop,
            gradient=gradient,
            single_file=single_file,
            collective_id=collective_id,
        )
    _check_of_reshard(what, loop)
    backends = checked(DEFAULT_BACKENDS if backends is None else backends)
    check_features(asked, backends)
    return emit_reshard(
        what,
        backends,
        strategy,
        topology,
        memory_limit,
        gradient=gradient,
        single_file=single_file,
        collective_id=collective_id,
        features=asked,
    )


def _check_of_reshard(what: object, loop: str | None) -> None:
    """Raise InputError for a value without modules, and for a loop, which only matmuls have."""
    if loop is not None:
        raise InputError(
            "loop applies only to a Matmul",
            argument="loop",
            got=f"{loop!r} for a {type(what).__name__}",
            expected="a Matmul or its plan; leave out loop otherwise",
        )
    if not isinstance(what, Reshard | Plan):
        raise InputError(
            "this value has no modules to emit",
            got=type(what).__name__,
            expected="a Reshard, Matmul or Relayout, a plan, a partitioned function, or the `plan` "
            "of a result of sw.sync",
        )
