"""The questions that commands ask about every kind of operation, and about groups.

Each kind has a file with its answers, `ANSWERS`. `kinds.py` lists the files by class of
description.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from shardwright.codegen.operations.emit.choice import planned
from shardwright.codegen.spec.config import Config
from shardwright.codegen.spec.description import Description
from shardwright.codegen.spec.group import Group
from shardwright.codegen.spec.matmul import Operation
from shardwright.ir.errors import InputError, InternalError
from shardwright.ir.plan import Plan

if TYPE_CHECKING:  # emission must not load these modules
    from rich.table import Table

    from shardwright.codegen.checks.case import Case
    from shardwright.codegen.checks.matmul_case import MatmulCase
    from shardwright.codegen.checks.report import Report
    from shardwright.codegen.operations.compile.targets import Target
    from shardwright.codegen.operations.compile.tasks import Task
    from shardwright.codegen.operations.measure.price import Price
    from shardwright.codegen.operations.verify.pool import Runner

D = TypeVar("D", bound=Operation | Group)
Printed: TypeAlias = "str | Table"
"""A text to print unchanged, or a table to print as wide as the terminal."""


@dataclass(frozen=True)
class Within:
    """The config from which operations are emitted. `plans`: the plans made so far, by folder;
    `features`: the features that flags request, by the operation's name."""

    config: Config
    plans: dict[str, Plan] = field(default_factory=dict)
    features: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def plan_of(self, member: Description) -> Plan:
        """Return the plan of a group's member. Each folder is planned only once."""
        folder = self.config.folder(member.name)
        if folder not in self.plans:
            self.plans[folder] = planned(member)
        return self.plans[folder]


@dataclass(frozen=True)
class Now:
    """The files of a bundle as emitted now. `found`: the rules that the files on disk break, each
    with a diff; `refused`: the error if the bundle would not be written."""

    files: Mapping[str, str]
    found: tuple[tuple[str, str], ...] = ()
    refused: InputError | None = None


@dataclass(frozen=True)
class ModuleJob(Generic[D]):
    """One module of a bundle below a root: the subject of a report."""

    said: D
    backend: str
    root: Path

    @property
    def folder(self) -> Path:
        return self.root / self.said.name

    @property
    def module(self) -> Path:
        return self.folder / f"{self.backend}.py"


@dataclass(frozen=True)
class PlanAsked:
    """The options of the command `plan` that determine its output."""

    json: bool = False
    transfers: bool = False
    compare: bool = False
    explain: bool = False
    relabel: bool = False


@dataclass(frozen=True)
class Runs:
    """What it takes to verify a module: a time limit in seconds, a folder for smaller twins of
    large bundles, and the backend's worker (None if the module runs alone)."""

    time_limit: float
    twins: Path = Path()
    worker: Runner | None = None

    @property
    def runner(self) -> Runner:
        """The worker, which must not be None."""
        assert self.worker is not None
        return self.worker


class Answers(ABC, Generic[D]):
    """The answers for one class of description."""

    alone = False
    """Whether each module is verified in a separate process, after the modules of other kinds."""
    options: tuple[str, ...] = ()
    """The subset of `OPTIONS` of `plan` and `show` that this kind supports."""

    @abstractmethod
    def files(self, said: D, within: Within) -> dict[str, str]:
        """Return the text of every file of a bundle, by file name."""

    def now(self, said: D, within: Within, folder: Path) -> Now:
        """Return the files with which a bundle on disk is compared."""
        return Now(self.files(said, within))

    def plan(self, said: D, asked: PlanAsked) -> Iterator[Printed]:
        """Yield the texts and tables that `plan` prints. May raise InputError after some of
        them."""
        raise self._lacks("plan")

    def text(self, said: D) -> str:
        """Return the text that `show` prints."""
        raise self._lacks("text")

    def picture(self, said: D) -> str:
        """Return the picture that `show --svg` writes."""
        raise self._lacks("picture")

    def page(self, said: D, *, compare: bool) -> str:
        """Return the page that `show --html` writes; `compare`: whether to include the bytes of
        other partitioners."""
        raise self._lacks("page")

    @abstractmethod
    def backends(self, said: D, root: Path) -> tuple[str, ...]:
        """Return the backends whose modules are verified, given the root of the bundle."""

    @abstractmethod
    def devices(self, job: ModuleJob[D]) -> int:
        """Return the number of devices that a module needs to run."""

    @abstractmethod
    def report(self, job: ModuleJob[D], runs: Runs) -> Report:
        """Return the verdict on a module."""

    def tasks(self, said: D, root: Path, target: Target) -> Iterator[Task[Any]]:
        """Yield the compilations of a bundle for a target."""
        yield from ()

    def timed(self, job: ModuleJob[D]) -> Case | MatmulCase | None:
        """Return the case with which a module is timed, or None if modules of this kind cannot be
        timed."""
        return None

    def price(self, said: D, backend: str) -> Price:
        """Return the price function of a module that can be timed."""
        raise self._lacks("price")

    def _lacks(self, what: str) -> InternalError:
        """Return the error for a question that this kind does not answer. Commands must not ask it:
        they plan and show the members of a group instead, and ask for pictures and pages only if
        `options` has them."""
        return InternalError(f"{type(self).__name__} has no {what}")
