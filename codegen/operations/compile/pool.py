"""Compile programs of one backend in a worker with the environment that its compiler needs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from shardwright.codegen.checks.compiled.job import Job
from shardwright.codegen.checks.compiled.report import GpuCode, Outcome, TpuCode
from shardwright.codegen.checks.workers.worker import EndedError, LateError, Worker
from shardwright.codegen.moves.xla import Collective
from shardwright.codegen.operations.compile import kept
from shardwright.codegen.operations.compile.targets import compilers

_CODES = {code.__name__: code for code in (TpuCode, GpuCode)}


def outcomes(jobs: Sequence[Job], time_limit: float) -> Iterator[Outcome]:
    """Yield the outcomes of one backend's jobs, in order, as they end.

    All jobs run in one process. A job that kills the process, or takes longer than `time_limit`
    seconds, fails, and a new process runs the remaining jobs.
    """
    if not jobs:
        return
    backend = jobs[0].backend
    with tempfile.TemporaryDirectory(prefix="shardwright-compile-") as folder:
        module, needed = __package__ + ".worker", compilers()[backend].environment(Path(folder))
        worker = Worker(module, backend, environment=needed)
        try:
            for job in jobs:
                yield _outcome(worker, job, time_limit)
        finally:
            worker.stop()


def _outcome(worker: Worker, job: Job, time_limit: float) -> Outcome:
    answer = kept.recall(job)
    try:
        if answer is None:
            answer = worker.ask(job.to_json(), time_limit)
            kept.keep(job, answer)
    except EndedError as error:
        return Outcome(error=f"the compiler's process {error}")
    except LateError as error:
        return Outcome(error=str(error))
    if "error" in answer:
        return Outcome(error=answer["error"])
    fields = answer["code"]
    if "moves" in fields:
        fields["moves"] = tuple(Collective(*move) for move in fields["moves"])
    return Outcome(_CODES[answer["kind"]](**fields))
