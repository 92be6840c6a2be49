"""What a bundle may be of: the questions that commands ask of every kind of operation, and of
groups.

One file a kind has the answers; `ANSWERS` in `codegen/operations/__init__.py` lists them by class
of description.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from shardwright.codegen.emit.choice import planned
from shardwright.codegen.spec.config import Config
from shardwright.codegen.spec.description import Description
from shardwright.codegen.spec.group import Group
from shardwright.codegen.spec.matmul import Operation
from shardwright.ir.errors import InputError, InternalError
from shardwright.ir.plan import Plan

if TYPE_CHECKING:  # emission loads none of these modules
    from rich.table import Table

    from shardwright.codegen.checks.case import Case
    from shardwright.codegen.checks.matmul_case import MatmulCase
    from shardwright.codegen.checks.report import Report
    from shardwright.codegen.compile.targets import Target
    from shardwright.codegen.compile.tasks import Task
    from shardwright.codegen.measure.price import Price
    from shardwright.codegen.verify.pool import Runner

D = TypeVar("D", bound=Operation | Group)
Printed: TypeAlias = "str | Table"
"""A text as it is printed, or a table as wide as the terminal."""


@dataclass(frozen=True)
class Within:
    """The config in which operations are emitted: the plans of its reshards so far, by folder, and
    the features that flags ask of an operation, by name."""

    config: Config
    plans: dict[str, Plan] = field(default_factory=dict)
    features: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def plan_of(self, member: Description) -> Plan:
        """Return the plan of a group's member, made once a folder."""
        folder = self.config.folder(member.name)
        if folder not in self.plans:
            self.plans[folder] = planned(member)
        return self.plans[folder]


@dataclass(frozen=True)
class Now:
    """The files of a bundle as emitted now; `found`: rules that the files on disk break, with
    diffs; `refused`: why the bundle would not be written."""

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
        """The folder of the bundle."""
        return self.root / self.said.name

    @property
    def module(self) -> Path:
        """The file of the module."""
        return self.folder / f"{self.backend}.py"


@dataclass(frozen=True)
class PlanAsked:
    """What `plan` prints of an operation: options of the command."""

    json: bool = False
    transfers: bool = False
    compare: bool = False
    explain: bool = False
    relabel: bool = False


@dataclass(frozen=True)
class Runs:
    """Where a module is verified: the worker of its backend, unless it runs alone, a folder for its
    twins, and the seconds that it may take."""

    time_limit: float
    twins: Path = Path()
    worker: Runner | None = None

    @property
    def runner(self) -> Runner:
        """The worker."""
        assert self.worker is not None
        return self.worker


class Answers(ABC, Generic[D]):
    """The answers for one class of description."""

    alone = False
    """Whether each module is verified in a process of its own, after all others."""
    options: tuple[str, ...] = ()
    """The options of `plan` and `show` that it takes, of `OPTIONS`."""

    @abstractmethod
    def files(self, said: D, within: Within) -> dict[str, str]:
        """Return the text of every file of a bundle, by file name."""

    def now(self, said: D, within: Within, folder: Path) -> Now:
        """Return the files that a bundle on disk is compared with."""
        return Now(self.files(said, within))

    def plan(self, said: D, asked: PlanAsked) -> Iterator[Printed]:
        """Yield the text that `plan` prints, in parts. May raise InputError between two parts."""
        raise self._lacks("plan")

    def text(self, said: D) -> str:
        """Return the text that `show` prints."""
        raise self._lacks("text")

    def picture(self, said: D) -> str:
        """Return the picture that `show --svg` writes."""
        raise self._lacks("picture")

    def page(self, said: D, *, compare: bool) -> str:
        """Return the page that `show --html` writes; `compare`: whether the page has the bytes of
        other partitioners."""
        raise self._lacks("page")

    @abstractmethod
    def backends(self, said: D, root: Path) -> tuple[str, ...]:
        """Return the backends of the modules that are verified, given the root of the bundle."""

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
        """Return the case of a module that can be timed, or None for a kind that cannot."""
        return None

    def price(self, said: D, backend: str) -> Price:
        """Return the predicted seconds of a module that can be timed."""
        raise self._lacks("price")

    def _lacks(self, what: str) -> InternalError:
        """Return the error for an answer that commands must not ask of this kind: groups are
        planned and shown by their members, and `options` lists who has pictures and pages."""
        return InternalError(f"{type(self).__name__} has no {what}")
