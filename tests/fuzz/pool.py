"""Worker processes that run cases: started, timed, ended and replaced."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from .generate import DEVICES
from .job import KINDS, Job, Verdict

TIME_LIMIT = 120.0
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
        for kind in sorted(waiting, reverse=number % 2 == 1):
            with _Seat(kind) as seat:
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


class _Seat:
    """Runs jobs of a kind one after another, in a process that is replaced when it must be."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._process: _Process | None = None
        self._served = 0

    def __enter__(self) -> _Seat:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def run(self, job: Job) -> Verdict:
        """The verdict on a job."""
        if self._served == BATCH:
            self._stop()
        if self._process is None:
            self._process, self._served = _Process(self._kind), 0
        self._served += 1
        answer = self._process.ask(job)
        if answer["fresh"]:
            self._stop()
        return Verdict(job.case, answer["verdict"], answer["detail"], answer["seconds"])

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.stop()


class _Process:
    """One worker."""

    def __init__(self, kind: str) -> None:
        with tempfile.NamedTemporaryFile(prefix="fuzz-log-", delete=False) as log:
            self._log = Path(log.name)
        with self._log.open("a") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.worker", kind],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=os.environ | _environment(kind),
                cwd=_ROOT,
                text=True,
                bufsize=1,
            )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()
        started = self._answer()
        if "ready" not in started:
            raise RuntimeError(f"a worker did not start: {started['detail']}")

    def ask(self, job: Job) -> dict[str, Any]:
        """The worker's answer about a job."""
        assert self._process.stdin is not None
        self._process.stdin.write(job.to_line())
        return self._answer()

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        self._log.unlink(missing_ok=True)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put("")

    def _answer(self) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=TIME_LIMIT)
        except queue.Empty:
            return _failed(f"no result after {TIME_LIMIT:g} s")
        if line.startswith("{"):
            answer: dict[str, Any] = json.loads(line)
            return answer
        said = [line.strip(), *self._log.read_text(errors="replace").split("\n")]
        return _failed("the process ended: " + " ".join(text for text in said if text)[-300:])


def _failed(detail: str) -> dict[str, Any]:
    return {"verdict": "failed", "detail": detail, "fresh": True, "seconds": TIME_LIMIT}


def _environment(kind: str) -> dict[str, str]:
    """What must be set before the runtime is imported."""
    if kind == "torch":
        return {"TRITON_INTERPRET": "1"}
    forced = f"--xla_force_host_platform_device_count={DEVICES}"
    wide = str(int(kind == "jax_x64"))
    return {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": forced, "JAX_ENABLE_X64": wide}
