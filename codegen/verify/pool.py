"""Worker processes: started with the right environment, timed, killed and restarted."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from shardwright.codegen.backends import registry
from shardwright.codegen.verify.case import Case, GroupCase
from shardwright.codegen.verify.report import Progress, Report
from shardwright.codegen.workers.process import command, ending

TIME_LIMIT = 300.0
"""Seconds that one case may take, by default."""

START_LIMIT = 240.0
"""Seconds that a worker may take to import its runtime and to find the faults planted in it."""


def missing(backend: str) -> str:
    """Why a backend cannot run here, or the empty string."""
    needs = registry.runtime(backend)
    absent = [module for module in needs.packages if find_spec(module) is None]
    if not absent:
        return ""
    verb = "is" if len(absent) == 1 else "are"
    return f"{', '.join(absent)} {verb} not installed: pip install 'shardwright[{needs.extra}]'"


class _DiedError(Exception):
    """The worker ended or was ended; the text says why."""


class _Worker:
    """One process that serves one backend's cases."""

    def __init__(self, backend: str, devices: int) -> None:
        with tempfile.NamedTemporaryFile(prefix="shardwright-verify-", delete=False) as log:
            self._log = Path(log.name)
        self._process = subprocess.Popen(
            command(__package__ + ".worker", backend, str(self._log)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | registry.runtime(backend).environment(devices, os.environ),
            encoding="utf-8",
            bufsize=1,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self._answer(START_LIMIT)
        except _DiedError:
            self.stop()
            raise

    def ask(self, case: Case | GroupCase, limit: float) -> dict[str, Any]:
        """The worker's answer about one case; after a _DiedError it is of no more use."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(case.to_json() + "\n")
        except BrokenPipeError:
            raise _DiedError(self._epitaph()) from None
        return self._answer(limit)

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._log.unlink(missing_ok=True)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def _answer(self, limit: float) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=limit)
        except queue.Empty:
            raise _DiedError(
                f"no result after {limit:g} s: it hangs, or is too large to run here"
            ) from None
        if not line.startswith("{"):
            raise _DiedError(self._epitaph(line))
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _epitaph(self, line: str = "") -> str:
        """How the process ended and the last thing it said."""
        if line:  # it still runs, but does not speak the protocol
            self._process.kill()
        how = ending(self._process.wait())
        said = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        last = [text.strip() for text in (*said, line) if text.strip()][-1:]
        return ": ".join([f"the process that ran it ended with {how}", *last])


class Runner:
    """Runs cases of one backend, one after another, in a worker that is replaced when it fails.

    `devices`: the most devices that any case has. `close` may be called from another thread; a
    case under way then ends as failed.
    """

    def __init__(self, backend: str, devices: int, time_limit: float = TIME_LIMIT) -> None:
        self._backend, self._devices, self._limit = backend, devices, time_limit
        self._missing = missing(backend)
        self._worker: _Worker | None = None
        self._closed = False

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, case: Case | GroupCase) -> Report:
        """The report on one case."""
        if self._missing:
            return _report(case, {"verdict": "skipped", "detail": self._missing})
        answer = self._answer(case)
        if answer.get("fresh"):
            self._stop()
        return _report(case, answer)

    def close(self) -> None:
        """End the worker."""
        self._closed = True
        self._stop()

    def _answer(self, case: Case | GroupCase) -> dict[str, Any]:
        try:
            if self._closed:
                raise _DiedError("it was stopped")
            self._worker = self._worker or _Worker(self._backend, self._devices)
            return self._worker.ask(case, self._limit)
        except _DiedError as error:
            return {"verdict": "failed", "detail": str(error), "fresh": True}

    def _stop(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.stop()


def run_batch(
    backend: str,
    cases: Sequence[Case],
    *,
    progress: Progress | None = None,
    time_limit: float = TIME_LIMIT,
) -> tuple[Report, ...]:
    """Verify many modules of one backend in one worker, in order.

    A case that hangs or kills the worker is reported as failed, and a new worker takes the rest.
    """
    devices = max((len(case.devices()) for case in cases), default=0)
    reports: list[Report] = []
    with Runner(backend, devices, time_limit) as runner:
        for case in cases:
            reports.append(runner.run(case))
            if progress is not None:
                progress(len(reports), len(cases), reports[-1])
    return tuple(reports)


def failure(case: Case | GroupCase, detail: str) -> Report:
    """The report on a case that failed without being run."""
    return _report(case, {"verdict": "failed", "detail": detail})


def _report(case: Case | GroupCase, answer: dict[str, Any]) -> Report:
    return Report(
        name=case.name,
        backend=case.backend,
        devices=len(case.devices()),
        verdict=answer["verdict"],
        detail=answer["detail"],
        seconds=answer.get("seconds", 0.0),
        checks=tuple(answer.get("checks", ())),
    )
