"""Worker processes that run cases: started, timed, ended and replaced."""

from __future__ import annotations

import atexit
import os
import queue
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from shardwright.codegen.checks.case import Case
from shardwright.codegen.checks.workers.worker import EndedError, LateError, Worker
from shardwright.codegen.operations.verify.pool import Runner
from shardwright.ir import InputError

from .generate import DEVICES, MOST_IDS
from .job import KINDS, VERIFY, Job, Verdict
from .modules import emitted, reshard_of
from .refusals import verdict

TIME_LIMIT = 300.0
"""Seconds that a case may take."""

BATCH = 50
"""Cases that a process runs before another takes its place: what is compiled stays in memory."""

_ROOT = Path(__file__).resolve().parents[len((__package__ or "").split("."))]


def run_all(
    jobs: Iterable[Job], processes: int, progress: Callable[[Verdict], None] = lambda _: None
) -> list[Verdict]:
    """The verdicts on jobs, by their cases' ids, from so many processes at a time."""
    waiting = {kind: queue.SimpleQueue[Job]() for kind in KINDS}
    for job in jobs:
        waiting[job.kind].put(job)
    found: list[Verdict] = []
    lock = threading.Lock()

    def serve(number: int) -> None:
        for kind in KINDS if number % 2 == 0 else reversed(KINDS):
            with _seat(kind) as seat:
                while (job := _next(waiting[kind])) is not None:
                    made = seat.run(job)
                    with lock:
                        found.append(made)
                        progress(made)

    threads = [threading.Thread(target=serve, args=(n,), daemon=True) for n in range(processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(found, key=lambda made: made.case.id)


def _next(waiting: queue.SimpleQueue[Job]) -> Job | None:
    try:
        return waiting.get_nowait()
    except queue.Empty:
        return None


def _seat(kind: str) -> Seat:
    return _Judge(kind) if kind.startswith(VERIFY) else _Seat(kind)


@cache
def seat_of(kind: str) -> Seat:
    """The worker of a kind, until this process ends."""
    made = _seat(kind)
    atexit.register(made.__exit__)
    return made


class _Judge:
    """Has modules judged as `shardwright verify` does."""

    def __init__(self, kind: str) -> None:
        self._runner = Runner(kind.removeprefix(VERIFY), MOST_IDS, TIME_LIMIT)

    def __enter__(self) -> _Judge:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.close()

    def run(self, job: Job) -> Verdict:
        """The verdict on a job."""
        start = time.perf_counter()
        ended, detail = self._judged(job)
        return Verdict(job.case, ended, detail, time.perf_counter() - start)

    def _judged(self, job: Job) -> tuple[str, str]:
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            try:
                path = emitted(job, Path(folder))
            except InputError as error:
                detail = " | ".join(str(error).splitlines())
                return verdict(job.case, "failed", detail), detail
            case = Case.of(reshard_of(job.case), str(job.case.id), job.case.backend, path)
            report = self._runner.run(case)
        return "ok" if report.verdict == "ok" else "wrong", report.detail


class _Seat:
    """Runs jobs of a kind one after another, in a worker that is replaced now and then."""

    def __init__(self, kind: str) -> None:
        self._worker = Worker(f"{__package__}.worker", kind, environment=_environment(kind))
        self._served = 0

    def __enter__(self) -> _Seat:
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.stop()

    def run(self, job: Job) -> Verdict:
        """The verdict on a job."""
        start = time.perf_counter()
        answer = self._answer(job)
        self._served += 1
        if answer["fresh"] or self._served % BATCH == 0:
            self._worker.stop()
        seconds = time.perf_counter() - start
        return Verdict(job.case, answer["verdict"], answer["detail"], seconds)

    def _answer(self, job: Job) -> dict[str, Any]:
        try:
            return self._worker.ask(job.to_line(), TIME_LIMIT)
        except (EndedError, LateError) as error:
            return {"verdict": "failed", "detail": str(error), "fresh": True}


Seat = _Seat | _Judge


def _environment(kind: str) -> dict[str, str]:
    """What must be set before the runtime is imported, and where this package is."""
    path = {"PYTHONPATH": os.pathsep.join([str(_ROOT), *_set("PYTHONPATH")])}
    if kind == "torch":
        return {**path, "TRITON_INTERPRET": "1"}
    forced = f"--xla_force_host_platform_device_count={DEVICES}"
    wide = str(int(kind == "jax_x64"))
    return {**path, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": forced, "JAX_ENABLE_X64": wide}


def _set(name: str) -> list[str]:
    """The value of a variable of the environment, if it has one."""
    return [os.environ[name]] if os.environ.get(name) else []
