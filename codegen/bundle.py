"""Bundles: the files emitted for one reshard."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from shardwright.codegen.describe import DEFAULT_BACKENDS, Description
from shardwright.codegen.modules import Part, parts
from shardwright.codegen.writing import write_bundles
from shardwright.ir.errors import InputError, one_of, wrong_type
from shardwright.ir.plan import Plan
from shardwright.ir.reshard import Reshard

if TYPE_CHECKING:
    from shardwright.codegen.show.review import Tables


@dataclass(frozen=True)
class Bundle:
    """What is emitted for a plan. `strategy` is what was asked for, `plan.strategy` what it is;
    `topology` and `memory_limit` are what it was chosen by."""

    plan: Plan
    backends: tuple[str, ...]
    strategy: str
    topology: str | None = None
    memory_limit: int | None = None

    def description(self, name: str) -> Description:
        """All that it takes to emit this bundle again under a name."""
        chosen_by = (self.strategy, self.topology, self.memory_limit)
        return Description.of(self.plan.reshard, name, self.backends, *chosen_by)

    def files(self, name: str) -> dict[str, str]:
        """The text of every file of the bundle, by file name; the same for the same plan."""
        from shardwright.codegen.render import render
        from shardwright.codegen.show.review import review_page
        from shardwright.codegen.show.svg import svg

        command = self.description(name).command()
        modules = self.modules(command)
        own = {f"{backend}.py" for backend in self.backends}
        backward = tuple(part.file for part in modules if part.file not in own)
        package = _Package(name, ", ".join(self.backends), ", ".join(backward))
        return {
            **{part.file: part.text for part in modules},
            "README.md": review_page(
                self.plan, name, command, tables=self._tables(), backward=backward
            ),
            "__init__.py": render("package.py.jinja", package),
            "plan.json": self.plan.to_json(),
            "reshard.svg": svg(self.plan),
        }

    def _tables(self) -> Tables:
        """What backends have to say on the review page."""
        from shardwright.codegen.backends import BACKENDS

        modules = (BACKENDS[backend] for backend in self.backends)
        return tuple(m.review(self.plan) for m in modules if hasattr(m, "review"))

    def modules(self, command: str) -> tuple[Part, ...]:
        """The modules of every backend, each with its backward where it has one."""
        return tuple(part for b in self.backends for part in parts(self.plan, b, command))

    def write(self, path: str | Path) -> tuple[Path, ...]:
        """Write the bundle into the folder `path`, whose last part is its name, and note it in the
        manifest beside that folder. The files that changed, removed ones too; nothing is written
        on an error."""
        if not isinstance(path, str | Path):
            raise wrong_type(path, Path, '"generated/transpose_2x3"', "path")
        folder = Path(os.path.abspath(path))
        return write_bundles(
            folder.parent, ((self.description(folder.name), self.files(folder.name)),)
        )


@dataclass(frozen=True)
class _Package:
    """What the template of a bundle's `__init__.py` prints."""

    name: str
    modules: str
    backward: str


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
    from shardwright.codegen.backends import BACKENDS
    from shardwright.codegen.planner import plan as plan_of
    from shardwright.codegen.planner.choose import check_executed

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
    from shardwright.codegen.planner.choose import executed_by

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
