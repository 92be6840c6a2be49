"""Emission: from a reshard, a plan or a description to its bundle, the files emitted for it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from shardwright.codegen.backends import registry
from shardwright.codegen.backends.base import Table
from shardwright.codegen.backends.registry import DEFAULT_BACKENDS
from shardwright.codegen.emit.choice import checked, executed_by
from shardwright.codegen.emit.choice import plan as plan_of
from shardwright.codegen.emit.modules import Part, parts
from shardwright.codegen.emit.support import support_files
from shardwright.codegen.emit.templates import render
from shardwright.codegen.emit.verdict import page_lines
from shardwright.codegen.emit.write import write_bundles
from shardwright.codegen.planner import STRATEGIES
from shardwright.codegen.show.review import review_page
from shardwright.codegen.show.svg import svg
from shardwright.codegen.spec.description import Description
from shardwright.ir.errors import InputError, check_type, one_of, wrong_type
from shardwright.ir.plan import Plan
from shardwright.ir.reshard import Reshard


@dataclass(frozen=True)
class Bundle:
    """What is emitted for a plan. `strategy` is what was asked for, `plan.strategy` what it is;
    `topology` and `memory_limit` are what it was chosen by. `gradient` and `single_file`: as in a
    description."""

    plan: Plan
    backends: tuple[str, ...]
    strategy: str
    topology: str | None = None
    memory_limit: int | None = None
    gradient: bool = False
    single_file: bool = False

    def description(self, name: str) -> Description:
        """Return all that it takes to emit this bundle again under a name."""
        chosen_by = (self.strategy, self.topology, self.memory_limit)
        return Description.of(
            self.plan.reshard,
            name,
            self.backends,
            *chosen_by,
            gradient=self.gradient,
            single_file=self.single_file,
        )

    def files(self, name: str) -> dict[str, str]:
        """Return the text of every file of the bundle, by file name; the same for the same plan."""
        command = self.description(name).command()
        modules = self.modules(command)
        own = {f"{backend}.py" for backend in self.backends}
        backward = tuple(part.file for part in modules if part.file not in own)
        support = bool(support_files(self.description(name).supported))
        return {
            **{part.file: part.text for part in modules},
            "README.md": review_page(
                self.plan,
                name,
                command,
                tables=self._tables(),
                backward=backward,
                takes=page_lines(self.plan, self.backends),
            ),
            "__init__.py": render("common/package.py.jinja", _Package(support)),
            "plan.json": self.plan.to_json(),
            "reshard.svg": svg(self.plan),
        }

    def _tables(self) -> tuple[Table, ...]:
        """Return what backends have to say on the review page."""
        tables = (registry.backend(backend).review(self.plan) for backend in self.backends)
        return tuple(table for table in tables if table is not None)

    def modules(self, command: str) -> tuple[Part, ...]:
        """Return the modules of every backend, each with its backward where it has one."""
        return tuple(
            part
            for backend in self.backends
            for part in parts(
                self.plan, backend, command, gradient=self.gradient, single_file=self.single_file
            )
        )

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
    """What the template of a bundle's `__init__.py` prints; `support`: whether modules need the
    support modules beside the folder."""

    support: bool


def emit(
    what: Plan | Reshard,
    backends: tuple[str, ...] = DEFAULT_BACKENDS,
    strategy: str = "auto",
    topology: str | None = None,
    memory_limit: int | None = None,
    *,
    gradient: bool = False,
    single_file: bool = False,
) -> Bundle:
    """Return the bundle of a reshard, or of a plan of it.

    `gradient`: with the reverse reshard beside each module that needs to be asked for it, which
    otherwise raises for a tensor that requires a gradient. `single_file`: with support modules in
    each module that has any, so that it can be copied alone.

    Raises InputError for an unknown backend and where a backend refuses the plan. `strategy` and
    what it is chosen by are for a reshard, of which only strategies count that every backend
    executes; a plan has one, and its bundle says "auto" where auto makes the same plan.
    """
    backends = checked(backends)
    reshard = what.reshard if isinstance(what, Plan) else what
    check_type(reshard, Reshard, "Reshard(shape, dtype, source, target)", "reshard")
    check_reduces(reshard, backends)
    check_executed("auto" if isinstance(what, Plan) else strategy, backends)
    if isinstance(what, Plan):
        plan = what
        if plan.prediction is not None:
            topology, memory_limit = plan.prediction.topology, plan.prediction.memory_bytes
        auto = plan_of(reshard, topology=topology, memory_limit=memory_limit, backends=backends)
        strategy = "auto" if auto == plan else plan.strategy
    else:
        plan = plan_of(
            reshard, strategy, topology=topology, memory_limit=memory_limit, backends=backends
        )
    for backend in backends:
        registry.backend(backend).refuse(plan)
    return Bundle(plan, backends, strategy, topology, memory_limit, gradient, single_file)


def emit_described(description: Description) -> Bundle:
    """Return the bundle of a description."""
    return emit(
        description.reshard(),
        description.backends,
        description.strategy,
        description.topology,
        description.memory_limit,
        gradient=description.gradient,
        single_file=description.single_file,
    )


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
