"""The interface of a backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from shardwright.codegen.backends.contract import Contract
from shardwright.codegen.backends.toolchain import Compiler, Runtime
from shardwright.codegen.partition.partitioned import Partitioned
from shardwright.codegen.planner.network.rings import Rings
from shardwright.codegen.planner.network.timeline import Timeline
from shardwright.ir.errors import InputError, InternalError
from shardwright.ir.matmul import Matmul
from shardwright.ir.matmul_plan import MatmulPlan
from shardwright.ir.plan import Plan

Row = tuple[str, ...]
Table = tuple[str, tuple[Row, tuple[Row, ...]]]
"""A title with a heading and rows."""


@dataclass(frozen=True)
class Request:
    """The input from which a module is rendered.

    `like`: the plan of another module, whose form to take where there are several. `backward`:
    whether the module moves the cotangents of the one beside it. `derivative`: whether the module
    that moves its cotangents stands beside it. `collective_id`: of kernels that meet by one.
    `features`: what the module has besides, where the backend knows it.
    """

    plan: Plan
    command: str
    like: Plan | None = None
    backward: bool = False
    derivative: bool = False
    collective_id: int = 0
    features: tuple[str, ...] = ()


@dataclass(frozen=True)
class RingText:
    """A kernel and the constant that runs it, `lines`; `imported`: imports of JAX that these take,
    `calls`: names that they take of support modules."""

    lines: tuple[str, ...]
    imported: tuple[str, ...]
    calls: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Grouping:
    """What the module of a group has of a backend: `host`, the support module of its class `Group`;
    `exports`, the names of functions; `environment` of a self-check, in which {devices} stands for
    how many there are, {more} for one more; `how`: how tensors go, in words; `support`: the support
    modules that it uses besides; `template`: its own, of which `kernel` is what the class takes."""

    host: str
    exports: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    how: str
    support: tuple[str, ...]
    template: str = "common/group.py.jinja"
    kernel: str = ""


class Backend(Protocol):
    """Renders plans as modules of one kind.

    `executes`: the strategies whose plans it takes. `reduces`: those by which it reduces terms;
    `in_two`: whether in two exchanges too, perhaps only between meshes of one order of devices.
    `unsupported`: the dtypes that it does not move, each with the reason.
    `differentiable`: whether its modules have derivatives, by a backward beside them. `portable`:
    whether they are plain JAX, which XLA compiles for whatever it knows. `compiler`: None where
    there is none for this kind alone. `support`: the support modules that its modules use,
    `matmul_support` those that modules of matmuls use besides, `model_support` those of models;
    `model_host` is the one that these call, empty where it has no modules of models.
    `features`: those that its modules can have.
    `gradient_on_request`: whether they have derivatives only where a bundle is asked for them.
    `grouping`: what the module of a group has of it.
    """

    name: str
    executes: tuple[str, ...] = ("direct",)
    reduces: tuple[str, ...] = ()
    in_two: Literal["never", "in one order", "always"] = "never"
    unsupported: Mapping[str, str] = {}
    differentiable: bool = True
    portable: bool = False
    runtime: Runtime
    on_torus: bool | None = None
    compiler: Compiler | None = None
    contract: Contract
    grouping: Grouping
    support: tuple[str, ...] = ()
    matmul_support: tuple[str, ...] = ()
    model_support: tuple[str, ...] = ()
    model_host: str = ""
    features: tuple[str, ...] = ()
    gradient_on_request: bool = False

    def refuse(self, plan: Plan) -> None:
        """Raise InputError for a plan that this backend does not take."""

    def render(self, request: Request) -> str:
        """Return the text of a module of a plan that is not refused."""

    def timeline(self, plan: Plan) -> Timeline:
        """Return what the module of a plan that is not refused does, stage by stage."""

    def relaid(self, plan: Plan) -> int:
        """Return the bytes that XLA reads and writes on a TPU in passes around the collectives of a
        plan of several steps, were they its own."""
        raise InternalError(f"{self.name} carries out no plan of several steps as collectives")

    def review(self, plan: Plan) -> Table | None:
        """Return the table of the module on the review page, or None."""
        return None

    def rings(self, plan: Plan) -> Rings | None:
        """Return the rings on which the module of a plan that is not refused reduces terms, None
        where it does not."""
        return None

    def refuse_matmul(self, matmul: Matmul) -> None:
        """Raise InputError for a matmul that this backend has no modules of."""
        raise InputError(
            f"{self.name} has no modules of matmuls",
            argument="backends",
            got=self.name,
            expected="a backend that multiplies, as plain JAX does",
        )

    def render_matmul(
        self,
        plan: MatmulPlan,
        command: str,
        backward: tuple[str, ...] = (),
        collective_id: int = 0,
    ) -> str:
        """Return the text of the module of a matmul that is not refused; `backward`: the modules
        beside it that make the cotangents of lhs and of rhs; `collective_id`: of its kernel."""
        raise InternalError(f"{self.name} has no modules of matmuls")

    def ring_of(self, plan: MatmulPlan, name: str, axes: str, collective_id: int) -> RingText:
        """Return a kernel that multiplies while parts travel, for a program in which it has a name;
        `axes`: the expression of those over which devices are ranked. Raises InputError for what it
        does not multiply."""
        raise InputError(
            f"{self.name} has no kernels for programs",
            argument="kernels",
            got=self.name,
            expected="a backend with kernels that multiply",
        )


class ProgramBackend(Protocol):
    """Renders programs: partitioned functions, each as one module."""

    def render(self, program: Partitioned) -> str:
        """Return the text of a program's module, which takes support of the kernels in it."""

    def stored(self, program: Partitioned) -> dict[str, str]:
        """Return the files beside a program's module, by name."""

    def kernel_lines(self, program: Partitioned) -> tuple[str, ...]:
        """Return which matmuls have a kernel, and why others have none."""
