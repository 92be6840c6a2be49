"""Compile bundles on disk: the jobs of each target, and one report for each bundle and target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shardwright.codegen.checks.compiled.job import Job, What
from shardwright.codegen.checks.compiled.report import (
    Code,
    CompileReport,
    Outcome,
    Progress,
    TpuCode,
    Verdict,
)
from shardwright.codegen.compile.pool import outcomes
from shardwright.codegen.compile.targets import Target, compilers, parse_targets, require
from shardwright.codegen.emit.choice import planned
from shardwright.codegen.emit.group import backends_of
from shardwright.codegen.emit.verdict import verdicts
from shardwright.codegen.planner import plan
from shardwright.codegen.planner.matmul.plan import plan_matmul
from shardwright.codegen.planner.xla import XlaCollectives, in_words
from shardwright.codegen.spec.description import Description
from shardwright.codegen.spec.manifest import read_manifest
from shardwright.codegen.spec.matmul import MatmulDescription
from shardwright.codegen.spec.paths import described, grouped
from shardwright.ir.dtypes import DTYPES
from shardwright.ir.errors import InputError
from shardwright.ir.matmul import SIDES

Outcomes = Mapping[What, Outcome]


@dataclass(frozen=True)
class _BundleTask:
    """One bundle to compile for one target; each has one report."""

    root: Path
    description: Description
    target: Target

    @property
    def name(self) -> str:
        """The name of the bundle."""
        return self.description.name

    @property
    def backend(self) -> str | None:
        """The backend whose module is compiled: plain JAX if the bundle has no kernel for the
        target; None if it has neither."""
        given = self.description.backends
        return next((backend for backend in self.target.takes if backend in given), None)

    @property
    def possible(self) -> bool:
        """Whether the bundle has a module for the target."""
        return self.backend is not None

    def jobs(self, save: Path | None, xla: bool) -> tuple[Job, ...]:
        """Return the worker's jobs: the module, with and without 64-bit types in JAX, and XLA's
        reshard if requested."""
        name, backend = self.name, self.target.backend
        module = self.root / name / f"{self.backend}.py"
        files = None if save is None else str(save / name / self.target.stem)
        asked = Job("module", backend, module.stem, str(module), self.target.name)
        jobs: tuple[Job, ...] = (replace(asked, files=files),)
        is_xla = self.target.compiler.is_xla
        # Tensors of 64-bit elements exist only with 64-bit types, so there is one mode to compile.
        if is_xla and DTYPES[self.description.dtype] < 8:
            jobs += (replace(asked, what="x64"),)
        # XLA's own reshard is an identity, which cannot add terms.
        adds = bool(self.description.reshard().source.unreduced)
        if xla and is_xla and not adds:
            splits = (self.description.source_split, self.description.target_split)
            jobs += (replace(asked, what="xla", nested="nested" in splits),)
        return jobs

    def report(self, outcomes: Outcomes) -> CompileReport:
        """Return the report on the outcomes of the jobs."""
        outcome, wide, xla = outcomes["module"], outcomes.get("x64"), outcomes.get("xla")
        if outcome.code is None:
            return self._report("failed", outcome.error, None, xla)
        if wide is not None and wide.code is None:
            return self._report("failed", f"with jax_enable_x64: {wide.error}", outcome.code, xla)
        return self._report("ok", _warned(outcome), outcome.code, xla)

    def skipped(self) -> CompileReport:
        """Return the report on a bundle without a module for the target."""
        return self._report("skipped", f"the bundle has no {self.target.backend}.py", None, None)

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
        return plan(self.description.reshard()).traffic.bound_received_max

    def _best(self, xla: Outcome | None) -> str:
        """Return one line on whether the module or XLA's own reshard is faster on a TPU
        topology."""
        if xla is None or not isinstance(xla.code, TpuCode) or self.backend is None:
            return ""
        moves, made = list(xla.code.moves), planned(self.description)
        names = in_words(move.op for move in moves)
        found = XlaCollectives(0, 0, 0, names, moves)
        return "".join(verdicts(made, (self.backend,), self.target.name, found))


@dataclass(frozen=True)
class _GroupTask:
    """One group to compile for one GPU; each has one report."""

    root: Path
    name: str
    target: Target

    def jobs(self, save: Path | None, xla: bool) -> tuple[Job, ...]:
        """Return the worker's job: to compile the module. XLA has no equivalent."""
        backend = self.target.backend
        module = str(self.root / self.name / f"{backend}.py")
        files = None if save is None else str(save / self.name / self.target.stem)
        return (Job("group", backend, backend, module, self.target.name, files),)

    def report(self, outcomes: Outcomes) -> CompileReport:
        """Return the report on the outcome of the job."""
        outcome = outcomes["group"]
        verdict: Verdict = "ok" if outcome.code else "failed"
        target = self.target
        detail = outcome.error or _warned(outcome)
        return CompileReport(self.name, target.name, target.backend, verdict, detail, outcome.code)


@dataclass(frozen=True)
class _MatmulTask:
    """One matmul to compile for one TPU topology; each has one report."""

    root: Path
    description: MatmulDescription
    target: Target

    @property
    def name(self) -> str:
        """The name of the bundle."""
        return self.description.name

    def jobs(self, save: Path | None, xla: bool) -> tuple[Job, ...]:
        """Return the worker's jobs: the module; if it has a kernel, the module with 64-bit types in
        JAX; and jit's own matmul, if requested and possible."""
        name, given = self.name, self.description.backends
        (emitted,) = (backend for backend in self.target.takes if backend in given)
        module = str(self.root / name / f"{emitted}.py")
        files = None if save is None else str(save / name / self.target.stem)
        asked = Job("matmul", self.target.backend, emitted, module, self.target.name, files)
        jobs: tuple[Job, ...] = (asked,)
        is_xla = self.target.compiler.is_xla
        # Kernels do not multiply 64-bit elements, so the first job has 64-bit types disabled.
        if is_xla and emitted == self.target.backend:
            jobs += (replace(asked, what="x64_matmul", files=None),)
        matmul = self.description.matmul()
        if xla and is_xla and not any(matmul.sharding(side).unreduced for side in SIDES):
            jobs += (replace(asked, what="xla_matmul", files=None),)
        return jobs

    def report(self, outcomes: Outcomes) -> CompileReport:
        """Return the report on the outcomes of the jobs. Its bound is the bytes that the plan
        receives."""
        outcome, target = outcomes["matmul"], self.target
        wide = outcomes.get("x64_matmul", outcome)
        verdict: Verdict = "ok" if outcome.code and wide.code else "failed"
        detail = (
            f"with jax_enable_x64: {wide.error}"
            if outcome.code and wide.error
            else outcome.error or _warned(outcome)
        )
        planned = plan_matmul(
            self.description.matmul(),
            self.description.topology,
            loop=self.description.loop,
            listed=0,
        )
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
    """Return a module's warning, or ""."""
    warning = outcome.code.warning if isinstance(outcome.code, TpuCode) else ""
    return warning and f"warns: {warning}"


Task = _BundleTask | _GroupTask | _MatmulTask


def compiled(
    paths: Iterable[str | Path],
    targets: Iterable[str],
    save: Path | None,
    xla: bool,
    progress: Progress | None,
    time_limit: float,
) -> tuple[CompileReport, ...]:
    """Implement `compile_bundles`, which has the documentation."""
    chosen = parse_targets(targets)
    tasks = _tasks(paths, chosen)
    require(chosen, save is not None)
    if save is not None:
        _check_folder(save, tasks)
    reports: dict[Task, CompileReport] = {
        task: task.skipped()
        for task in tasks
        if isinstance(task, _BundleTask) and not task.possible
    }
    if progress is not None:
        progress(len(reports), len(tasks), None)
    for backend in compilers():
        mine = [t for t in tasks if t not in reports and t.target.backend == backend]
        for task, report in _run(mine, save, xla, time_limit):
            reports[task] = report
            if progress is not None:
                progress(len(reports), len(tasks), report)
    return tuple(reports[task] for task in tasks)


def _tasks(paths: Iterable[str | Path], targets: Sequence[Target]) -> list[Task]:
    every = tuple(paths)
    bundles = [
        _BundleTask(root, description, target)
        for (root, _), description in described(every).items()
        if isinstance(description, Description)
        for target in targets
    ]
    matmuls = [
        _MatmulTask(root, description, target)
        for (root, _), description in described(every).items()
        if isinstance(description, MatmulDescription)
        for target in targets
        if set(target.takes) & set(description.backends)
    ]
    groups = [
        _GroupTask(root, name, target)
        for (root, name), group in grouped(every).items()
        for target in targets
        if target.backend in backends_of(group, read_manifest(root).members(group))
    ]
    return [*bundles, *matmuls, *groups]


def _check_folder(save: Path, tasks: Sequence[Task]) -> None:
    homes: dict[str, Path] = {}
    for task in tasks:
        name = task.name
        if homes.setdefault(name, task.root) != task.root:
            raise InputError(
                "two bundles with the same name cannot be saved in one folder",
                argument="save",
                got=f"{name} of {homes[name]} and of {task.root}",
                expected="one of them",
            )
    try:
        save.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror}",
            argument="save",
            got=str(save),
            expected="a folder that can be created and written",
        ) from None


def _run(
    tasks: Sequence[Task], save: Path | None, xla: bool, time_limit: float
) -> Iterator[tuple[Task, CompileReport]]:
    """Yield the tasks of one backend with their reports, as they end. They run in sequence:
    compilers use several cores, and the seconds of tasks must be comparable."""
    jobs = {task: task.jobs(save, xla) for task in tasks}
    done = outcomes([job for listed in jobs.values() for job in listed], time_limit)
    for task, listed in jobs.items():
        yield task, task.report({job.what: next(done) for job in listed})
