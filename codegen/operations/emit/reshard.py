"""Emission of reshards: turn a plan or a description into the files of its bundle."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from shardwright.codegen import registry
from shardwright.codegen.backends.base import Table
from shardwright.codegen.operations.emit.choice import check_executed, checked, plan_reshard
from shardwright.codegen.operations.emit.modules import Part, parts
from shardwright.codegen.operations.emit.package import BundlePackage
from shardwright.codegen.operations.emit.verdict import page_lines
from shardwright.codegen.operations.emit.ways import plan_json, reduced_by, rings_by
from shardwright.codegen.operations.emit.write import bundle_folder, write_bundle
from shardwright.codegen.registry import DEFAULT_BACKENDS
from shardwright.codegen.show.review import RINGS, calls_of, review_page
from shardwright.codegen.show.rings import rings_svg
from shardwright.codegen.show.svg import svg
from shardwright.codegen.spec.collective_ids import bundle_id
from shardwright.codegen.spec.description import BUNDLE_IDS, Description, kept_features, read_id
from shardwright.codegen.spec.features import feature_lines
from shardwright.codegen.text.docstring import title
from shardwright.codegen.text.support import support_files
from shardwright.codegen.text.templates import render
from shardwright.ir.drawn import Drawn
from shardwright.ir.dump import VARIABLE, dump
from shardwright.ir.errors import InputError, check_type, one_of
from shardwright.ir.plan import Plan
from shardwright.ir.reshard import Reshard


@dataclass(frozen=True, repr=False)
class Bundle(Drawn):
    """The emission of a plan.

    `strategy` is the user's choice, for example "auto"; `plan.strategy` is the strategy chosen for
    `topology` and `memory_limit`. The other fields are those of a `Description`.
    """

    plan: Plan
    backends: tuple[str, ...]
    strategy: str
    topology: str | None = None
    memory_limit: int | None = None
    gradient: bool = False
    single_file: bool = False
    collective_id: int | None = None
    features: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Bundle for {', '.join(self.backends)}: {self.plan!r}>"

    def description(self, name: str) -> Description:
        """Return the description from which this bundle can be emitted again, under a name."""
        chosen_by = (self.strategy, self.topology, self.memory_limit)
        return Description.of(
            self.plan.reshard,
            name,
            self.backends,
            *chosen_by,
            gradient=self.gradient,
            single_file=self.single_file,
            features=self.features,
            collective_id=self.collective_id,
        )

    def files(self, name: str) -> dict[str, str]:
        """Return the text of every file of the bundle, by file name. Equal bundles have equal
        texts."""
        description = self.description(name)
        modules = self.modules(description)
        own = {f"{backend}.py" for backend in self.backends}
        backward = tuple(part.file for part in modules if part.file not in own)
        support = bool(support_files(description.supported))
        ways = reduced_by(self.plan, self.backends).items()
        pictures = self._pictures()
        return {
            **{part.file: part.text for part in modules},
            "README.md": review_page(
                self.plan,
                name,
                description.command("."),
                tables=self._tables(),
                backward=backward,
                takes=(
                    *self._reading_lines(),
                    *(f"{backend} reduces terms with {way}" for backend, way in ways),
                    *page_lines(self.plan, self.backends),
                    *self._feature_lines(),
                ),
                rings=RINGS in pictures,
            ),
            "__init__.py": render(
                "common/package.py.jinja", BundlePackage("reshard", support, self.backends)
            ),
            "plan.json": plan_json(self.plan, self.backends),
            **pictures,
        }

    def _reading_lines(self) -> tuple[str, ...]:
        """Return how to call the modules, and the order in which to read one."""
        packages = {each for name in self.backends for each in registry.runtime(name).packages}
        calls = [call for package, call in calls_of(self.plan).items() if package in packages]
        then = "" if self.single_file else ", then its imports from `_support`"
        return f"Call {'; '.join(calls)}.", f"Read a module from its docstring down{then}."

    def _feature_lines(self) -> tuple[str, ...]:
        asked = (*self.features, *(["gradient"] if self.gradient else []))
        return feature_lines({name: self._features_of(name) for name in self.backends}, asked)

    def _features_of(self, backend: str) -> tuple[str, ...]:
        lacking = registry.backend(backend).lacks(self.plan)
        return tuple(each for each in registry.DUTIES[backend].features if each not in lacking)

    def check_features(self, names: Iterable[str]) -> None:
        """Raise InputError for a feature that no module of this bundle can have."""
        known = {each for backend in self.backends for each in self._features_of(backend)}
        for name in names:
            if name not in known:
                raise InputError(
                    f"no module of this reshard can have the feature {name} (docs/config.md)",
                    argument="features",
                    got=name,
                    expected=one_of(sorted(known)),
                )

    def _pictures(self) -> dict[str, str]:
        found = {"reshard.svg": svg(self.plan)}
        for rings in rings_by(self.plan, self.backends).values():
            drawn = rings_svg(rings, title(self.plan))
            found |= {RINGS: drawn} if drawn else {}
        return found

    def _tables(self) -> tuple[Table, ...]:
        tables = (registry.backend(backend).review(self.plan) for backend in self.backends)
        return tuple(table for table in tables if table is not None)

    def modules(self, description: Description) -> tuple[Part, ...]:
        """Return the modules of every backend, each followed by its backward module if it has one,
        under the name in the description."""
        command = description.command()
        return tuple(
            part
            for backend in self.backends
            for part in parts(
                self.plan,
                backend,
                command,
                gradient=self.gradient,
                single_file=self.single_file,
                features=self.features,
                collective_id=_collective_id(description, backend),
            )
        )

    def write(self, path: str | Path) -> tuple[Path, ...]:
        """Write the bundle into the folder `path` and record it in the manifest next to that
        folder. The last part of `path` is the bundle's name. Return the files that were changed or
        removed. On an error, write nothing."""
        folder = bundle_folder(path, "generated/transpose_2x3")
        return write_bundle(folder, self.description(folder.name), self.files(folder.name))


def _collective_id(description: Description, backend: str) -> int:
    return bundle_id(description) if registry.contract(backend).collective else 0


def emit_reshard(
    what: Plan | Reshard,
    backends: tuple[str, ...] = DEFAULT_BACKENDS,
    strategy: str = "auto",
    topology: str | None = None,
    memory_limit: int | None = None,
    *,
    gradient: bool = False,
    single_file: bool = False,
    collective_id: int | None = None,
    features: tuple[str, ...] = (),
) -> Bundle:
    """Return the bundle of a reshard or a plan; see `emit.emit`."""
    backends = checked(backends)
    reshard = what.reshard if isinstance(what, Plan) else what
    check_type(reshard, Reshard, "Reshard(shape, dtype, source, target)", "reshard")
    check_executed("auto" if isinstance(what, Plan) else strategy, backends, reshard)
    if isinstance(what, Plan):
        plan = what
        if plan.prediction is not None:
            topology, memory_limit = plan.prediction.topology, plan.prediction.memory_bytes
        auto = plan_reshard(
            reshard, topology=topology, memory_limit=memory_limit, backends=backends
        )
        strategy = "auto" if auto == plan else plan.strategy
    else:
        plan = plan_reshard(
            reshard, strategy, topology=topology, memory_limit=memory_limit, backends=backends
        )
    if VARIABLE in os.environ:
        dump("plan", plan_json(plan, backends))
    for backend in backends:
        registry.backend(backend).refuse(plan)
    read_id(collective_id, BUNDLE_IDS)
    chosen_by = strategy, topology, memory_limit
    kept = kept_features(features, reshard)
    return Bundle(plan, backends, *chosen_by, gradient, single_file, collective_id, kept)


def emit_described(description: Description) -> Bundle:
    return emit_reshard(
        description.reshard(),
        description.backends,
        description.strategy,
        description.topology,
        description.memory_limit,
        gradient=description.gradient,
        single_file=description.single_file,
        collective_id=description.collective_id,
        features=description.features,
    )
