"""Bundles: the files emitted for one reshard."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from shardwright.codegen.backends import registry
from shardwright.codegen.backends.base import Table
from shardwright.codegen.emit.modules import Part, parts
from shardwright.codegen.emit.support import support_files
from shardwright.codegen.emit.templates import render
from shardwright.codegen.emit.verdict import page_lines
from shardwright.codegen.emit.write import write_bundles
from shardwright.codegen.show.review import review_page
from shardwright.codegen.show.svg import svg
from shardwright.codegen.spec.description import Description
from shardwright.ir.errors import wrong_type
from shardwright.ir.plan import Plan


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
