"""What a backend is: the interface by which everything else knows one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from shardwright.codegen.backends.contract import Contract
from shardwright.codegen.backends.toolchain import Compiler, Runtime
from shardwright.codegen.planner.network.timeline import Timeline
from shardwright.codegen.spec.group import Group
from shardwright.ir.errors import InternalError
from shardwright.ir.plan import Plan

Row = tuple[str, ...]
Table = tuple[str, tuple[Row, tuple[Row, ...]]]
"""A title with a heading and rows."""


@dataclass(frozen=True)
class Request:
    """What a module is rendered from.

    `like`: the plan of another module, whose form to take where there are several. `backward`:
    whether the module moves the cotangents of the one beside it. `derivative`: whether the module
    that moves its cotangents stands beside it.
    """

    plan: Plan
    command: str
    like: Plan | None = None
    backward: bool = False
    derivative: bool = False


class Backend(Protocol):
    """Renders plans as modules of one kind.

    `executes`: the strategies whose plans it takes. `reduces`: whether it takes shardings
    with unreduced axes. `unsupported`: the dtypes that it does not move, each with the reason.
    `differentiable`: whether its modules have derivatives, by a backward beside them. `portable`:
    whether they are plain JAX, which XLA compiles for whatever it knows. `compiler`: None where
    there is none for this kind alone. `support`: the support modules that its modules use.
    `gradient_on_request`: whether they have derivatives only where a bundle is asked for them.
    """

    name: str
    executes: tuple[str, ...] = ("direct",)
    reduces: bool = False
    unsupported: Mapping[str, str] = {}
    differentiable: bool = True
    portable: bool = False
    runtime: Runtime
    on_torus: bool | None = None
    compiler: Compiler | None = None
    contract: Contract
    has_groups: bool = False
    support: tuple[str, ...] = ()
    gradient_on_request: bool = False

    def refuse(self, plan: Plan) -> None:
        """Raise InputError for a plan that this backend does not take."""

    def render(self, request: Request) -> str:
        """Return the text of a module of a plan that is not refused."""

    def timeline(self, plan: Plan) -> Timeline:
        """Return what the module of a plan that is not refused does, stage by stage."""

    def review(self, plan: Plan) -> Table | None:
        """Return what a review page says of the module, None for nothing."""
        return None

    def group_files(
        self, group: Group, plans: Mapping[str, Plan], folders: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """Return the files of a group's folder, from the plans of its members; `folders`: those of
        the members that share the bundle of another one.

        Raises InputError for members that do not fit together. Only where it `has_groups`.
        """
        raise InternalError(f"{self.name} has no modules of groups")
