"""Verify bundles on disk: make a job for each module, run the jobs, and return one report for
each."""

from __future__ import annotations

import queue
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shardwright.codegen import registry
from shardwright.codegen.checks.case import MAX_DEVICES
from shardwright.codegen.checks.report import Progress, Report
from shardwright.codegen.emit.group import backends_of
from shardwright.codegen.emit.owner import owner_path
from shardwright.codegen.registry import PROGRAMS
from shardwright.codegen.spec.description import Description
from shardwright.codegen.spec.group import Group
from shardwright.codegen.spec.manifest import read_manifest
from shardwright.codegen.spec.matmul import MatmulDescription
from shardwright.codegen.spec.model import ModelDescription
from shardwright.codegen.spec.paths import described, grouped
from shardwright.codegen.spec.program import ProgramDescription
from shardwright.codegen.spec.relayout import RelayoutDescription
from shardwright.codegen.verify import single
from shardwright.codegen.verify.group import report_group
from shardwright.codegen.verify.matmul import report_matmul
from shardwright.codegen.verify.model import report_model
from shardwright.codegen.verify.pool import Runner
from shardwright.codegen.verify.program import report_program
from shardwright.codegen.verify.relayout import report_relayout


@dataclass(frozen=True)
class BundleJob:
    """One module of a reshard's bundle."""

    description: Description
    backend: str
    root: Path

    @property
    def descriptions(self) -> tuple[Description, ...]:
        return (self.description,)

    def report(self, runner: Runner, folder: Path) -> Report:
        """Return the verdict on the module."""
        module = self.root / self.description.name / f"{self.backend}.py"
        return single.report(self.description, module, runner, folder)


@dataclass(frozen=True)
class MatmulJob:
    """One module of a matmul's bundle."""

    description: MatmulDescription
    backend: str
    root: Path

    def report(self, runner: Runner, folder: Path) -> Report:
        """Return the verdict on the module."""
        module = self.root / self.description.name / f"{self.backend}.py"
        return report_matmul(self.description, module, runner, folder)


@dataclass(frozen=True)
class GroupJob:
    """The module of a group, and the descriptions of its members."""

    group: Group
    descriptions: tuple[Description, ...]
    root: Path
    backend: str

    def report(self, runner: Runner, folder: Path) -> Report:
        """Return the verdict on the module."""
        given = self.group, self.descriptions, self.root, self.backend
        return report_group(*given, runner, folder)


@dataclass(frozen=True)
class RelayoutJob:
    """One module of a relayout's bundle."""

    description: RelayoutDescription
    backend: str
    root: Path

    def report(self, runner: Runner, folder: Path) -> Report:
        """Return the verdict on the module."""
        module = self.root / self.description.name / f"{self.backend}.py"
        return report_relayout(self.description, self.backend, module, runner)


@dataclass(frozen=True)
class ModelJob:
    """One module of a model's bundle, with the data that it reads."""

    description: ModelDescription
    backend: str
    root: Path

    def report(self, runner: Runner, folder: Path) -> Report:
        """Return the verdict on the module."""
        return report_model(
            self.description, self.backend, self.root / self.description.name, runner
        )


@dataclass(frozen=True)
class ProgramJob:
    """The module of a program, which is compared with its function."""

    description: ProgramDescription
    root: Path
    backend: str = PROGRAMS

    def report(self, time_limit: float) -> Report:
        """Return the verdict on the module."""
        owner = owner_path(self.root, read_manifest(self.root))
        home = Path() if owner is None else owner.parent
        return report_program(self.description, self.root / self.description.name, home, time_limit)


Job = BundleJob | MatmulJob | GroupJob | RelayoutJob | ModelJob


def verify_bundles(
    paths: str | Path | Sequence[str | Path],
    backends: Sequence[str] | None,
    progress: Progress | None,
    time_limit: float,
) -> tuple[Report, ...]:
    """Implement `verify`, which has the documentation."""
    every = [paths] if isinstance(paths, str | Path) else list(paths)
    jobs, programs = _jobs(every, backends), _programs(every, backends)
    count = len(jobs) + len(programs)
    if progress is not None:
        progress(0, count, None)
    reports: dict[Job | ProgramJob, Report] = {}
    with tempfile.TemporaryDirectory(prefix="shardwright-twins-") as folder:
        for job, report in _run(jobs, Path(folder), time_limit):
            reports[job] = report
            if progress is not None:
                progress(len(reports), count, report)
    for program in programs:
        reports[program] = program.report(time_limit)
        if progress is not None:
            progress(len(reports), count, reports[program])
    return tuple(reports[job] for job in (*jobs, *programs))


def _programs(paths: Iterable[str | Path], backends: Sequence[str] | None) -> list[ProgramJob]:
    """Return the jobs for the programs at `paths`; none if only some backends are requested."""
    return [
        ProgramJob(description, root)
        for (root, _), description in described(paths).items()
        if isinstance(description, ProgramDescription) and backends is None
    ]


def _jobs(paths: Iterable[str | Path], backends: Sequence[str] | None) -> list[Job]:
    if backends is not None:
        registry.listed(backends)
    every = tuple(paths)
    jobs: list[Job] = [
        _job(description, backend, root)
        for (root, _), description in described(every).items()
        if not isinstance(description, ProgramDescription)
        for backend in description.backends
        if backends is None or backend in backends
    ]
    for (root, _), group in grouped(every).items():
        members = read_manifest(root).members(group)
        for backend in backends_of(group, members):
            if backends is None or backend in backends:
                jobs.append(GroupJob(group, members, root, backend))
    return jobs


def _job(
    described: Description | MatmulDescription | RelayoutDescription | ModelDescription,
    backend: str,
    root: Path,
) -> Job:
    """Return the job for a bundle's module."""
    if isinstance(described, ModelDescription):
        return ModelJob(described, backend, root)
    if isinstance(described, RelayoutDescription):
        return RelayoutJob(described, backend, root)
    if isinstance(described, MatmulDescription):
        return MatmulJob(described, backend, root)
    return BundleJob(described, backend, root)


def _run(jobs: Sequence[Job], folder: Path, time_limit: float) -> Iterator[tuple[Job, Report]]:
    """Yield every job with its report, in the order in which jobs end. Each backend has its own
    thread and process; each root has its own folder of twins, because its support modules may
    differ."""
    results: queue.Queue[tuple[Job, Report] | Exception] = queue.Queue()
    runners = []
    for backend in dict.fromkeys(job.backend for job in jobs):
        mine = [job for job in jobs if job.backend == backend]
        twins = {job.root: folder / str(number) for number, job in enumerate(jobs)}
        runner = Runner(backend, max(map(_devices, mine)), time_limit)
        runners.append(runner)
        threading.Thread(target=_serve, args=(mine, runner, twins, results), daemon=True).start()
    try:
        for _ in jobs:
            result = results.get()
            if isinstance(result, Exception):
                raise result
            yield result
    finally:
        for runner in runners:
            runner.close()


def _serve(
    jobs: Sequence[Job],
    runner: Runner,
    twins: Mapping[Path, Path],
    results: queue.Queue[tuple[Job, Report] | Exception],
) -> None:
    try:
        for job in jobs:
            results.put((job, job.report(runner, twins[job.root])))
    except Exception as error:
        results.put(error)


def _devices(job: Job) -> int:
    """Return the number of devices that a job's worker needs. A mesh larger than MAX_DEVICES is
    replaced by a smaller one, or nothing is run."""
    if isinstance(job, MatmulJob):
        size = job.description.matmul().mesh.size
        return size if size <= MAX_DEVICES else 0
    if isinstance(job, RelayoutJob | ModelJob):
        return min(job.description.devices, MAX_DEVICES)
    reshard = job.descriptions[0].reshard()
    count = len({*reshard.source.mesh.device_ids, *reshard.target.mesh.device_ids})
    return min(count, MAX_DEVICES)
