"""The compiler jobs of one bundle for one target, and the report on their outcomes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

from shardwright.codegen.checks.compiled.job import Job, What
from shardwright.codegen.checks.compiled.report import (
    Code,
    CompileReport,
    Outcome,
    TpuCode,
    Verdict,
)
from shardwright.codegen.moves import plan
from shardwright.codegen.moves.xla import XlaCollectives, in_words
from shardwright.codegen.operations.compile.targets import Target
from shardwright.codegen.operations.emit.choice import planned
from shardwright.codegen.operations.emit.matmul import plan_described_matmul
from shardwright.codegen.operations.emit.verdict import verdicts
from shardwright.codegen.spec.description import Description
from shardwright.codegen.spec.group import Group
from shardwright.codegen.spec.matmul import MatmulDescription
from shardwright.ir.dtypes import DTYPES
from shardwright.ir.matmul import SIDES

Outcomes = Mapping[What, Outcome]
D = TypeVar("D", Description, MatmulDescription, Group)


@dataclass(frozen=True)
class Task(ABC, Generic[D]):
    """One bundle below a root, for one target: the subject of a report."""

    said: D
    root: Path
    target: Target

    @property
    def name(self) -> str:
        return self.said.name

    @property
    def possible(self) -> bool:
        """Whether the bundle has a module for the target."""
        return True

    @abstractmethod
    def jobs(self, save: Path | None, xla: bool) -> tuple[Job, ...]:
        """Return the worker's jobs: the module and, if requested, XLA's own equivalent."""

    @abstractmethod
    def report(self, outcomes: Outcomes) -> CompileReport:
        """Return the report, given the outcomes of the jobs, of which there are none unless
        `possible`."""


@dataclass(frozen=True)
class BundleTask(Task[Description]):
    """The bundle of a reshard."""

    @property
    def backend(self) -> str | None:
        """The backend whose module is compiled: plain JAX if the bundle has no kernel for the
        target, None if it has neither."""
        given = self.said.backends
        return next((backend for backend in self.target.takes if backend in given), None)

    @property
    def possible(self) -> bool:
        return self.backend is not None

    def jobs(self, save: Path | None, xla: bool) -> tuple[Job, ...]:
        """Return the worker's jobs: the module, with and without 64-bit types in JAX, and XLA's own
        reshard if requested."""
        name, backend = self.name, self.target.backend
        module = self.root / name / f"{self.backend}.py"
        files = None if save is None else str(save / name / self.target.stem)
        asked = Job("module", backend, module.stem, str(module), self.target.name)
        jobs: tuple[Job, ...] = (replace(asked, files=files),)
        is_xla = self.target.compiler.is_xla
        # JAX has 64-bit elements only if 64-bit types are enabled.
        if is_xla and DTYPES[self.said.dtype] < 8:
            jobs += (replace(asked, what="x64"),)
        # XLA's own reshard is an identity, which cannot add terms.
        adds = bool(self.said.reshard().source.unreduced)
        if xla and is_xla and not adds:
            splits = (self.said.source_split, self.said.target_split)
            jobs += (replace(asked, what="xla", nested="nested" in splits),)
        return jobs

    def report(self, outcomes: Outcomes) -> CompileReport:
        if not self.possible:
            return self._report(
                "skipped", f"the bundle has no {self.target.backend}.py", None, None
            )
        outcome, wide, xla = outcomes["module"], outcomes.get("x64"), outcomes.get("xla")
        if outcome.code is None:
            return self._report("failed", outcome.error, None, xla)
        if wide is not None and wide.code is None:
            return self._report("failed", f"with jax_enable_x64: {wide.error}", outcome.code, xla)
        return self._report("ok", _warned(outcome), outcome.code, xla)

    def _report(
        self, verdict: Verdict, detail: str, code: Code | None, xla: Outcome | None
    ) -> CompileReport:
        name, target = self.name, self.target
        bound = self._bound() if target.compiler.is_xla else None
        best = self._best(xla) if code is not None else ""
        return CompileReport(
            name, target.name, target.backend, verdict, detail, code, xla, bound, best
        )

    def _bound(self) -> int:
        return plan(self.said.reshard()).traffic.bound_received_max

    def _best(self, xla: Outcome | None) -> str:
        if xla is None or not isinstance(xla.code, TpuCode) or self.backend is None:
            return ""
        moves, made = list(xla.code.moves), planned(self.said)
        names = in_words(move.op for move in moves)
        found = XlaCollectives(0, 0, 0, names, moves)
        return "".join(verdicts(made, (self.backend,), self.target.name, found))


@dataclass(frozen=True)
class GroupTask(Task[Group]):
    """The compilation of a group's module for a GPU."""

    def jobs(self, save: Path | None, xla: bool) -> tuple[Job, ...]:
        """Return the worker's single job, the module. XLA has no equivalent."""
        backend = self.target.backend
        module = str(self.root / self.name / f"{backend}.py")
        files = None if save is None else str(save / self.name / self.target.stem)
        return (Job("group", backend, backend, module, self.target.name, files),)

    def report(self, outcomes: Outcomes) -> CompileReport:
        outcome = outcomes["group"]
        verdict: Verdict = "ok" if outcome.code else "failed"
        target = self.target
        detail = outcome.error or _warned(outcome)
        return CompileReport(self.name, target.name, target.backend, verdict, detail, outcome.code)


@dataclass(frozen=True)
class MatmulTask(Task[MatmulDescription]):
    """The bundle of a matmul for one TPU topology."""

    def jobs(self, save: Path | None, xla: bool) -> tuple[Job, ...]:
        """Return the worker's jobs: the module; the same module with 64-bit types in JAX, if it has
        a kernel; and, if requested, jit's own matmul unless a side is a partial sum."""
        name, given = self.name, self.said.backends
        (emitted,) = (backend for backend in self.target.takes if backend in given)
        module = str(self.root / name / f"{emitted}.py")
        files = None if save is None else str(save / name / self.target.stem)
        asked = Job("matmul", self.target.backend, emitted, module, self.target.name, files)
        jobs: tuple[Job, ...] = (asked,)
        is_xla = self.target.compiler.is_xla
        # A kernel's elements never have 64 bits, so it must compile both without 64-bit types,
        # JAX's default, and with them.
        if is_xla and emitted == self.target.backend:
            jobs += (replace(asked, what="x64_matmul", files=None),)
        matmul = self.said.matmul()
        if xla and is_xla and not any(matmul.sharding(side).unreduced for side in SIDES):
            jobs += (replace(asked, what="xla_matmul", files=None),)
        return jobs

    def report(self, outcomes: Outcomes) -> CompileReport:
        """Return the report. Its bound is the plan's traffic."""
        outcome, target = outcomes["matmul"], self.target
        wide = outcomes.get("x64_matmul", outcome)
        verdict: Verdict = "ok" if outcome.code and wide.code else "failed"
        detail = (
            f"with jax_enable_x64: {wide.error}"
            if outcome.code and wide.error
            else outcome.error or _warned(outcome)
        )
        said = self.said
        planned = plan_described_matmul(said, listed=0)
        return CompileReport(
            self.name,
            target.name,
            target.backend,
            verdict,
            detail,
            outcome.code,
            outcomes.get("xla_matmul"),
            planned.chosen.cost.received_max,
        )


def _warned(outcome: Outcome) -> str:
    warning = outcome.code.warning if isinstance(outcome.code, TpuCode) else ""
    return warning and f"warns: {warning}"
