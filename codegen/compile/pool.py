"""Compile programs of one backend in a worker with the environment that its compiler needs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from shardwright.codegen.compile.job import Job
from shardwright.codegen.compile.report import GpuCode, Outcome, TpuCode
from shardwright.codegen.workers.worker import EndedError, Environment, LateError, Worker

# The TPU compiler works for any topology, whatever the machine at hand is said to be. Neither uses
# what it compiled before, so that seconds are those of compiling.
_ENVIRONMENT: dict[str, dict[str, str | None]] = {
    "pallas_tpu": {
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_COMPILATION_CACHE": "0",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        "TPU_ACCELERATOR_TYPE": "v5litepod-8",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_LOG_DIR": "disabled",
    },
    "triton_gpu": {"TRITON_INTERPRET": None, "TRITON_ALWAYS_COMPILE": "1"},
}

_CODES = {code.__name__: code for code in (TpuCode, GpuCode)}


def outcomes(jobs: Sequence[Job], time_limit: float) -> Iterator[Outcome]:
    """What came of jobs of one backend, in order, as they end.

    All run in one process. A job that kills it, or takes longer than `time_limit` seconds, has
    failed, and a new process takes the rest.
    """
    if not jobs:
        return
    backend = jobs[0].backend
    with tempfile.TemporaryDirectory(prefix="shardwright-compile-") as folder:
        module = __package__ + ".worker"
        worker = Worker(module, backend, environment=environment(backend, Path(folder)))
        try:
            for job in jobs:
                yield _outcome(worker, job, time_limit)
        finally:
            worker.stop()


def environment(backend: str, folder: Path) -> Environment:
    """What a backend's compiler needs; `folder` takes what it writes."""
    return _ENVIRONMENT[backend] | {"TRITON_CACHE_DIR": str(folder / "triton")}


def _outcome(worker: Worker, job: Job, time_limit: float) -> Outcome:
    try:
        answer: dict[str, Any] = worker.ask(job.to_json(), time_limit)
    except EndedError as error:
        return Outcome(error=f"the compiler's process {error}")
    except LateError as error:
        return Outcome(error=str(error))
    if "error" in answer:
        return Outcome(error=answer["error"])
    return Outcome(_CODES[answer["kind"]](**answer["code"]))
