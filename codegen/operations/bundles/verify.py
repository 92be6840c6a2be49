"""Verify bundles on disk: make a job for each module, run the jobs, and report on each."""

from __future__ import annotations

import queue
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from shardwright.codegen import registry
from shardwright.codegen.checks.case import MAX_DEVICES
from shardwright.codegen.checks.report import Progress, Report
from shardwright.codegen.operations.answers import ModuleJob, Runs
from shardwright.codegen.operations.kinds import answers_of
from shardwright.codegen.operations.verify.pool import TIME_LIMIT, Runner
from shardwright.codegen.spec.paths import described, grouped
from shardwright.ir.errors import known_arguments

Job = ModuleJob[Any]


@known_arguments
def verify(
    paths: str | Path | Sequence[str | Path],
    *,
    backends: Sequence[str] | None = None,
    progress: Progress | None = None,
    time_limit: float = TIME_LIMIT,
) -> tuple[Report, ...]:
    """Compare the results of the bundles' modules with the oracle. Return one report for each
    bundle and backend.

    `paths`: roots, which are folders with a manifest, or bundles in a root; `backends`: the
    backends of the modules to run, by default all. Each backend has its own process, which is
    replaced when a case takes longer than `time_limit` seconds. Raises InputError for a path
    without bundles and for an unknown backend.
    """
    every = [paths] if isinstance(paths, str | Path) else list(paths)
    jobs = jobs_of(every, backends)
    if progress is not None:
        progress(0, len(jobs), None)
    reports: dict[Job, Report] = {}
    with tempfile.TemporaryDirectory(prefix="shardwright-twins-") as folder:
        for job, report in _run(jobs, Path(folder), time_limit):
            reports[job] = report
            if progress is not None:
                progress(len(reports), len(jobs), report)
    return tuple(reports[job] for job in jobs)


def jobs_of(paths: Iterable[str | Path], backends: Sequence[str] | None) -> list[Job]:
    """Return a job for each module of these backends at the paths. Jobs that must run alone come
    last."""
    if backends is not None:
        registry.listed(backends)
    every = tuple(paths)
    said = {**described(every), **grouped(every)}
    jobs: list[Job] = [
        ModuleJob(each, backend, root)
        for (root, _), each in said.items()
        for backend in answers_of(each).backends(each, root)
        if backends is None or backend in backends
    ]
    return sorted(jobs, key=_is_alone)


def _is_alone(job: Job) -> bool:
    return answers_of(job.said).alone


def _run(jobs: Sequence[Job], folder: Path, time_limit: float) -> Iterator[tuple[Job, Report]]:
    """Yield every job with its report, in the order in which they end. Jobs that must run alone
    come last. Each backend has a thread and a process. Twins, smaller versions of large bundles, go
    to one folder per root, because they import the support modules of their root."""
    results: queue.Queue[tuple[Job, Report] | Exception] = queue.Queue()
    runners, shared = [], [job for job in jobs if not _is_alone(job)]
    for backend in dict.fromkeys(job.backend for job in shared):
        mine = [job for job in shared if job.backend == backend]
        twins = {job.root: folder / str(number) for number, job in enumerate(jobs)}
        runner = Runner(backend, max(map(_devices, mine)), time_limit)
        runners.append(runner)
        runs = {root: Runs(time_limit, each, runner) for root, each in twins.items()}
        threading.Thread(target=_serve, args=(mine, runs, results), daemon=True).start()
    try:
        for _ in shared:
            result = results.get()
            if isinstance(result, Exception):
                raise result
            yield result
    finally:
        for runner in runners:
            runner.close()
    for job in filter(_is_alone, jobs):
        yield job, report_of(job, Runs(time_limit))


def _serve(
    jobs: Sequence[Job],
    runs: Mapping[Path, Runs],
    results: queue.Queue[tuple[Job, Report] | Exception],
) -> None:
    try:
        for job in jobs:
            results.put((job, report_of(job, runs[job.root])))
    except Exception as error:
        results.put(error)


def report_of(job: Job, runs: Runs) -> Report:
    return answers_of(job.said).report(job, runs)


def _devices(job: Job) -> int:
    """Return the number of devices that a job's worker needs, at most MAX_DEVICES: on a larger
    mesh, a smaller twin runs instead."""
    return min(answers_of(job.said).devices(job), MAX_DEVICES)
