"""Compile bundles on disk: the jobs of each target, and one report for each bundle and target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from shardwright.codegen.compile.job import Job
from shardwright.codegen.compile.process import outcomes
from shardwright.codegen.compile.report import Code, Outcome, Progress, Report, Verdict
from shardwright.codegen.compile.targets import REQUIRES, Target, parse_targets, require
from shardwright.codegen.describe import Description
from shardwright.codegen.manifest import described
from shardwright.codegen.planner import plan
from shardwright.ir.errors import InputError

PORTABLE = {"pallas_tpu": ("jax_xla",)}
"""Backends whose modules the compiler of another one takes too."""


@dataclass(frozen=True)
class _Task:
    """One bundle for one target: what a report is about."""

    root: Path
    description: Description
    target: Target

    @property
    def backend(self) -> str | None:
        """The backend of the bundle whose module is compiled: plain JAX where it has no kernel for
        the target; None where it has neither."""
        kernel: str = self.target.backend
        taken = (kernel, *PORTABLE.get(kernel, ()))
        return next((backend for backend in taken if backend in self.description.backends), None)

    @property
    def possible(self) -> bool:
        """Whether the bundle has a module for the target."""
        return self.backend is not None

    def jobs(self, save: Path | None, xla: bool) -> tuple[Job, ...]:
        """What to ask a worker: the module, and XLA's reshard where that is wanted."""
        name, backend = self.description.name, self.target.backend
        module = str(self.root / name / f"{self.backend}.py")
        files = None if save is None else str(save / name / self.target.stem)
        jobs: tuple[Job, ...] = (Job("module", backend, module, self.target.name, files),)
        if xla and backend == "pallas_tpu":
            splits = (self.description.source_split, self.description.target_split)
            jobs += (Job("xla", backend, module, self.target.name, nested="nested" in splits),)
        return jobs

    def report(self, outcome: Outcome, xla: Outcome | None) -> Report:
        """The report, once the jobs are done."""
        if outcome.code is None:
            return self._report("failed", outcome.error, None, xla)
        return self._report("ok", "", outcome.code, xla)

    def skipped(self) -> Report:
        """The report on a bundle that has no module for the target."""
        return self._report("skipped", f"the bundle has no {self.target.backend}.py", None, None)

    def _report(
        self, verdict: Verdict, detail: str, code: Code | None, xla: Outcome | None
    ) -> Report:
        name, target = self.description.name, self.target
        bound = self._bound() if target.backend == "pallas_tpu" else None
        return Report(name, target.name, target.backend, verdict, detail, code, xla, bound)

    def _bound(self) -> int:
        return plan(self.description.reshard()).traffic.bound_received_max


def compiled(
    paths: Iterable[str | Path],
    targets: Iterable[str],
    save: Path | None,
    xla: bool,
    progress: Progress | None,
    time_limit: float,
) -> tuple[Report, ...]:
    """`compile_bundles`, whose docstring says what it does."""
    chosen = parse_targets(targets)
    tasks = _tasks(paths, chosen)
    require(chosen, save is not None)
    if save is not None:
        _check_folder(save, tasks)
    reports: dict[_Task, Report] = {task: task.skipped() for task in tasks if not task.possible}
    if progress is not None:
        progress(len(reports), len(tasks), None)
    for backend in REQUIRES:
        mine = [t for t in tasks if t.possible and t.target.backend == backend]
        for task, report in _run(mine, save, xla, time_limit):
            reports[task] = report
            if progress is not None:
                progress(len(reports), len(tasks), report)
    return tuple(reports[task] for task in tasks)


def _tasks(paths: Iterable[str | Path], targets: Sequence[Target]) -> list[_Task]:
    return [
        _Task(root, description, target)
        for (root, _), description in described(paths).items()
        for target in targets
    ]


def _check_folder(save: Path, tasks: Sequence[_Task]) -> None:
    homes: dict[str, Path] = {}
    for task in tasks:
        name = task.description.name
        if homes.setdefault(name, task.root) != task.root:
            raise InputError(
                "two bundles of one name cannot be saved in one folder",
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
            expected="a folder that can be made and written",
        ) from None


def _run(
    tasks: Sequence[_Task], save: Path | None, xla: bool, time_limit: float
) -> Iterator[tuple[_Task, Report]]:
    """The tasks of one backend with their reports, as they end. One after another: compilers use
    several cores, and seconds are to be comparable."""
    jobs = {task: task.jobs(save, xla) for task in tasks}
    done = outcomes([job for listed in jobs.values() for job in listed], time_limit)
    for task, listed in jobs.items():
        module, *others = (next(done) for _ in listed)
        yield task, task.report(module, others[0] if others else None)
