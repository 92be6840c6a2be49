"""Run the cases of one backend in a worker with the environment that the backend's runtime
needs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from shardwright.codegen import registry
from shardwright.codegen.checks.case import Case, GroupCase
from shardwright.codegen.checks.matmul_case import MatmulCase
from shardwright.codegen.checks.model_case import ModelCase
from shardwright.codegen.checks.relayout_case import RelayoutCase
from shardwright.codegen.checks.report import Progress, Report
from shardwright.codegen.checks.workers.worker import EndedError, LateError, Worker
from shardwright.ir.errors import install

AnyCase = Case | GroupCase | MatmulCase | RelayoutCase | ModelCase

TIME_LIMIT = 300.0
"""The default time limit for one case, in seconds."""


def missing(backend: str) -> str:
    """Return why a backend cannot run here, or "" if it can."""
    needs = registry.runtime(backend)
    absent = [module for module in needs.packages if find_spec(module) is None]
    if not absent:
        return ""
    verb = "is" if len(absent) == 1 else "are"
    return f"{', '.join(absent)} {verb} not installed: {install(needs.extra)}"


class Runner:
    """A worker that runs the cases of one backend one after another, and is replaced when it fails.

    `devices`: the most devices of any case. `close` may be called from another thread; a running
    case then ends as failed.
    """

    def __init__(self, backend: str, devices: int, time_limit: float = TIME_LIMIT) -> None:
        self._limit, self._missing, self._closed = time_limit, missing(backend), False
        module = __package__ + ".worker"
        needed = registry.runtime(backend).environment(devices, os.environ)
        self._worker = Worker(module, backend, environment=needed)

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, case: AnyCase) -> Report:
        if self._missing:
            return _report(case, {"verdict": "skipped", "detail": self._missing})
        answer = self._answer(case)
        if answer.get("fresh"):
            self._worker.stop()
        return _report(case, answer)

    def close(self) -> None:
        self._closed = True
        self._worker.stop()

    def _answer(self, case: AnyCase) -> dict[str, Any]:
        if self._closed:
            return {"verdict": "failed", "detail": "it was stopped"}
        try:
            return self._worker.ask(case.to_json(), self._limit)
        except EndedError as error:
            detail = f"the process that ran it {error}"
        except LateError as error:
            detail = f"{error}: it hangs, or is too large to run here"
        return {"verdict": "failed", "detail": detail}


def run_batch(
    backend: str,
    cases: Sequence[Case],
    *,
    progress: Progress | None = None,
    time_limit: float = TIME_LIMIT,
) -> tuple[Report, ...]:
    """Verify modules of one backend in one worker, in order.

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


def failure(case: AnyCase, detail: str) -> Report:
    """Report a case that failed before it ran."""
    return _report(case, {"verdict": "failed", "detail": detail})


def _report(case: AnyCase, answer: dict[str, Any]) -> Report:
    return Report(
        name=case.name,
        backend=case.backend,
        devices=len(case.devices()),
        verdict=answer["verdict"],
        detail=answer["detail"],
        seconds=answer.get("seconds", 0.0),
        checks=tuple(answer.get("checks", ())),
    )
