"""Emitted modules run one by one, each backend's in a worker that stays for the next."""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from cases import describe

from shardwright.codegen.operations.answers import Runs
from shardwright.codegen.operations.bundles.verify import jobs_of, report_of
from shardwright.codegen.operations.emit.modules import parts
from shardwright.codegen.operations.verify import Case, Report
from shardwright.codegen.operations.verify.pool import TIME_LIMIT, AnyCase, Runner, missing
from shardwright.ir.plan import Plan

MOST_DEVICES = 18


@cache
def runner(backend: str) -> Runner:
    """The worker of a backend, until the tests end."""
    if missing(backend):
        pytest.skip(missing(backend))
    made = Runner(backend, MOST_DEVICES)
    atexit.register(made.close)
    return made


def reports_of(backend: str, cases: Sequence[AnyCase]) -> list[Report]:
    """The verdicts on modules that stand on disk; Triton's interpreter needs no devices."""
    most = max(len(case.devices()) for case in cases)
    assert backend == "triton_gpu" or most <= MOST_DEVICES
    return [runner(backend).run(case) for case in cases]


def ran(backend: str, plans: list[Plan], folder: Path) -> list[Report]:
    """The verdicts on the modules of plans, which are written into the folder."""
    cases = []
    for number, made in enumerate(plans):
        path = folder / f"case{number}.py"
        path.write_text(parts(made, backend, "shardwright emit", single_file=True)[0].text)
        cases.append(Case.of(made.reshard, f"{describe(made.reshard)}: {made.ops}", backend, path))
    return reports_of(backend, cases)


def check(backend: str, plans: list[Plan], folder: Path) -> None:
    """All are right, and there are some; those that are not are named."""
    assert plans, "no plans: nothing would be checked"
    failed = [report for report in ran(backend, plans, folder) if report.verdict != "ok"]
    assert not failed, "\n".join(f"{report.name}\n    {report.detail}" for report in failed)


def verified(root: Path, *backends: str) -> list[Report]:
    """What `verify` says of the bundles below a folder, by the workers that stay."""
    jobs = jobs_of([root], backends or None)
    assert jobs, "no bundles: nothing would be checked"
    with tempfile.TemporaryDirectory() as folder:
        return [
            report_of(job, Runs(TIME_LIMIT, Path(folder) / str(number), runner(job.backend)))
            for number, job in enumerate(jobs)
        ]
