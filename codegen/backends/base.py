"""The interface that every backend implements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from shardwright.codegen.moves.network.rings import Rings
from shardwright.codegen.moves.network.timeline import Timeline
from shardwright.codegen.registry.contracts import Contract
from shardwright.codegen.registry.toolchain import Compiler, Runtime
from shardwright.ir.errors import InputError, InternalError
from shardwright.ir.matmul import Matmul
from shardwright.ir.matmul_plan import MatmulPlan
from shardwright.ir.plan import Plan

if TYPE_CHECKING:  # reshards and matmuls must not load programs
    from shardwright.codegen.partition.local.communications import WrittenRows
    from shardwright.codegen.partition.partitioned import Partitioned

Row = tuple[str, ...]
Table = tuple[str, tuple[Row, tuple[Row, ...]], str]
"""A table for the review page: its title, its heading with its rows, and a sentence under it, which
may be empty."""


@dataclass(frozen=True)
class Request:
    """The input from which a module is rendered.

    `like`: the plan of another module, whose form this module takes if the backend has several
    forms; `backward`: whether the module moves the cotangents of its sibling; `derivative`: whether
    a sibling moves its cotangents; `collective_id`: the number of the barrier that its kernel uses,
    if any; `features`: optional parts of the module that the backend supports; `buffers`: the names
    of the source and target buffers as Python literals, if the module belongs to a relayout, whose
    functions take arrays by name.
    """

    plan: Plan
    command: str
    like: Plan | None = None
    backward: bool = False
    derivative: bool = False
    collective_id: int = 0
    features: tuple[str, ...] = ()
    buffers: tuple[str, str] | None = None


@dataclass(frozen=True)
class RingText:
    """A kernel for a program's module. `lines`: the source of the kernel and of the callable
    constant that runs it; `imported`: the JAX imports that these lines need; `calls`: the names
    that they use, by support module."""

    lines: tuple[str, ...]
    imported: tuple[str, ...]
    calls: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Grouping:
    """A backend's part of the module of a group of tensors.

    `host`: the support module with the class `Group`; `exports`: the names of the module's public
    functions; `environment`: the environment variables of a self-check, in which {devices} is
    replaced by the number of devices and {more} by that number plus 1; `how`: the transport in
    words; `support`: additional support modules; `template`: the template of the module; `kernel`:
    an argument of the class `Group`, if it takes a kernel.
    """

    host: str
    exports: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    how: str
    support: tuple[str, ...]
    template: str = "common/group.py.jinja"
    kernel: str = ""


class Backend(Protocol):
    """Renders plans as modules of one kind.

    `executes`: the strategies of the plans that it accepts. `reduces`: the strategies of the plans
    with partial sums that it accepts; `in_two`: when it also reduces them in two exchanges: never,
    only if both meshes have the same device order, or always. `unsupported`: the dtypes that it
    does not move, each with the reason. `differentiable`: whether its modules have derivatives, by
    a backward sibling. `portable`: whether they are plain JAX, which XLA compiles for any platform.
    `loops`: the loops of a matmul's plan that its modules execute (`moves/matmul/plan.py`).
    `compiler`: the compiler of its modules, None if it has none. `support`, `matmul_support`,
    `model_support`: the support modules that its modules need, and the additional ones of matmuls
    and of models; `model_host`: the class that modules of models call, "" if the backend cannot
    emit them. `gradient_on_request`: whether derivatives are optional in a bundle. `grouping`: its
    part of a group's module.
    """

    name: str
    executes: tuple[str, ...] = ("direct",)
    reduces: tuple[str, ...] = ()
    in_two: Literal["never", "in one order", "always"] = "never"
    unsupported: Mapping[str, str] = {}
    differentiable: bool = True
    portable: bool = False
    loops: tuple[str, ...] = ("one", "both")
    runtime: Runtime
    on_torus: bool | None = None
    compiler: Compiler | None = None
    contract: Contract
    grouping: Grouping
    support: tuple[str, ...] = ()
    matmul_support: tuple[str, ...] = ()
    model_support: tuple[str, ...] = ()
    model_host: str = ""
    gradient_on_request: bool = False

    def refuse(self, plan: Plan) -> None:
        """Raise InputError for a plan that this backend does not accept."""

    def lacks(self, plan: Plan) -> tuple[str, ...]:
        """Return the optional features that modules of an accepted plan cannot have."""
        return ()

    def render(self, request: Request) -> str:
        """Return the text of a module for an accepted plan."""

    def timeline(self, plan: Plan) -> Timeline:
        """Return the timeline of an accepted plan's module."""

    def relaid(self, plan: Plan) -> int:
        """Return the bytes of the passes over memory that XLA would make on a TPU around the
        collectives of a plan of several steps, if it had chosen these collectives itself."""
        raise InternalError(f"{self.name} cannot run a plan of several steps as collectives")

    def review(self, plan: Plan) -> Table | None:
        """Return the module's table on the review page, or None."""
        return None

    def rings(self, plan: Plan) -> Rings | None:
        """Return the rings on which the module of an accepted plan reduces terms, or None."""
        return None

    def refuse_matmul(self, matmul: Matmul) -> None:
        """Raise InputError for a matmul that this backend does not support."""
        raise InputError(
            f"{self.name} cannot emit matmuls",
            argument="backends",
            got=self.name,
            expected="a backend that emits matmuls, such as jax_xla",
        )

    def render_matmul(
        self,
        plan: MatmulPlan,
        command: str,
        backward: tuple[str, ...] = (),
        collective_id: int = 0,
    ) -> str:
        """Return the text of the module of a supported matmul. `backward`: the names of the sibling
        modules that compute the cotangents of lhs and rhs; `collective_id`: the number of the
        barrier that its kernel uses."""
        raise InternalError(f"{self.name} cannot emit matmuls")

    def matmul_usage(self, plan: MatmulPlan) -> tuple[str, ...]:
        """Return sentences for users of the module of a supported matmul: how to call it, what it
        needs, and where it has run."""
        raise InternalError(f"{self.name} cannot emit matmuls")

    def ring_of(self, plan: MatmulPlan, name: str, axes: str, collective_id: int) -> RingText:
        """Return the kernel `name` of a program, which multiplies some parts while others are in
        flight. `axes`: the Python expression for the axes whose order gives device positions.
        Raises InputError for an unsupported product."""
        raise InputError(
            f"{self.name} has no kernels for programs",
            argument="kernels",
            got=self.name,
            expected="a backend with kernels for programs, such as pallas_tpu",
        )


@dataclass(frozen=True)
class ProgramModule:
    """The text of a program's module, and its table of communications, which uses the module's
    names for values."""

    text: str
    rows: WrittenRows


class ProgramBackend(Protocol):
    """Renders programs, each a partitioned function, as one module each."""

    def render(self, program: Partitioned) -> ProgramModule:
        """Return a program's module, which imports the support code of its kernels."""

    def stored(self, program: Partitioned) -> dict[str, str]:
        """Return the data files of a program's module, by file name."""

    def kernel_lines(self, program: Partitioned) -> tuple[str, ...]:
        """Return lines that list the matmuls with a kernel and say why the others have none."""
