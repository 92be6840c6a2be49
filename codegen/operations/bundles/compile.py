"""Compile bundles on disk: the jobs of each target, and one report per bundle and target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from shardwright.codegen.checks.compiled.report import CompileReport, Progress
from shardwright.codegen.operations.compile import TIME_LIMIT
from shardwright.codegen.operations.compile.pool import outcomes
from shardwright.codegen.operations.compile.targets import Target, compilers, parse_targets, require
from shardwright.codegen.operations.compile.tasks import Task
from shardwright.codegen.operations.kinds import FILES, answers_of
from shardwright.codegen.spec.paths import described, grouped
from shardwright.ir.errors import InputError


def compile_bundles(
    paths: str | Path | Sequence[str | Path],
    targets: Iterable[str],
    *,
    save: str | Path | None = None,
    xla: bool = True,
    progress: Progress | None = None,
    time_limit: float = TIME_LIMIT,
) -> tuple[CompileReport, ...]:
    """Compile the modules of bundles for TPU topologies and GPU architectures.

    `paths`: roots, which are folders with a manifest, or bundles in a root. There is one report for
    each bundle and target, in this order. For a TPU topology the Pallas module is compiled, with
    its meshes on the first devices, and unless `xla` is false XLA's own reshard as well; for a GPU
    architecture, the Triton module. A tensor too large for a device fails before compiling. `save`:
    a folder for the results, `save/bundle/target.*`. Raises InputError for a path without bundles,
    an unknown target or a missing compiler (argument "targets"), and a folder that cannot be
    written or would get two bundles of one name (argument "save").
    """
    chosen = parse_targets(targets)
    tasks = _tasks([paths] if isinstance(paths, str | Path) else paths, chosen)
    require(chosen, save is not None)
    folder = None if save is None else Path(save)
    if folder is not None:
        _check_folder(folder, tasks)
    reports: dict[Task[Any], CompileReport] = {
        task: task.report({}) for task in tasks if not task.possible
    }
    if progress is not None:
        progress(len(reports), len(tasks), None)
    for backend in compilers():
        mine = [t for t in tasks if t not in reports and t.target.backend == backend]
        for task, report in _run(mine, folder, xla, time_limit):
            reports[task] = report
            if progress is not None:
                progress(len(reports), len(tasks), report)
    return tuple(reports[task] for task in tasks)


def _tasks(paths: Iterable[str | Path], targets: Sequence[Target]) -> list[Task[Any]]:
    every = tuple(paths)
    said = {**described(every), **grouped(every)}
    return [
        task
        for kind in FILES
        for (root, _), each in said.items()
        if type(each) is kind
        for target in targets
        for task in answers_of(each).tasks(each, root, target)
    ]


def _check_folder(save: Path, tasks: Sequence[Task[Any]]) -> None:
    homes: dict[str, Path] = {}
    for task in tasks:
        name = task.name
        if homes.setdefault(name, task.root) != task.root:
            raise InputError(
                "two bundles with the same name cannot be saved in one folder",
                argument="save",
                got=f"{name} of {homes[name]} and of {task.root}",
                expected="one of these bundles, or a different folder for each",
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
    tasks: Sequence[Task[Any]], save: Path | None, xla: bool, time_limit: float
) -> Iterator[tuple[Task[Any], CompileReport]]:
    """Yield the tasks of one backend with their reports, in the order in which they end. They run
    one after another: compilers use several cores, and the seconds of tasks must be comparable."""
    jobs = {task: task.jobs(save, xla) for task in tasks}
    done = outcomes([job for listed in jobs.values() for job in listed], time_limit)
    for task, listed in jobs.items():
        yield task, task.report({job.what: next(done) for job in listed})
