"""Measure bundles on disk: time each module here, and predict its time with the planner's model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from shardwright.codegen import registry
from shardwright.codegen.checks.case import Case
from shardwright.codegen.checks.matmul_case import MatmulCase
from shardwright.codegen.checks.report import Verdict
from shardwright.codegen.checks.timed import Hardware
from shardwright.codegen.checks.workers.worker import EndedError, LateError, Worker
from shardwright.codegen.hardware.presets import topology_of
from shardwright.codegen.hardware.topology import Topology
from shardwright.codegen.operations.answers import ModuleJob
from shardwright.codegen.operations.kinds import answers_of
from shardwright.codegen.operations.measure.fit import Fit, Sample, fit
from shardwright.codegen.operations.measure.price import Price
from shardwright.codegen.operations.verify.pool import missing
from shardwright.codegen.spec.paths import described
from shardwright.ir.errors import InputError

TIME_LIMIT = 300.0
"""The time limit for one module, in seconds, including the check of its result."""


@dataclass(frozen=True)
class Measured:
    """The measurement of one module. `seconds`: the median of its calls; `price`: the prediction;
    `detail`: why it cannot run here (verdict `skipped`), or its fault (`failed`)."""

    name: str
    backend: str
    devices: int
    verdict: Verdict
    detail: str = ""
    seconds: float = 0.0
    price: Price | None = None
    hardware: Hardware | None = None

    @property
    def sample(self) -> Sample:
        """The measured module as a sample for the fit."""
        assert self.price is not None
        return Sample(self.price, self.seconds)


@dataclass(frozen=True)
class Measurement:
    """Measured modules, the topology on which they were priced, and the fitted topology."""

    modules: tuple[Measured, ...]
    topology: Topology
    fit: Fit

    @property
    def measured(self) -> tuple[Measured, ...]:
        """The modules that were timed, with the verdict `ok`."""
        return tuple(each for each in self.modules if each.verdict == "ok")


Progress = Callable[[int, int, Measured | None], None]
"""Called as progress(done, total, module): first with (0, total, None), then after each module."""


def measure(
    paths: Sequence[str | Path],
    backends: Sequence[str] | None = None,
    topology: str | None = None,
    progress: Progress | None = None,
) -> Measurement:
    """Time the modules of bundles on this machine's devices, and fit a topology to those with
    correct results.

    `topology`: the topology on which modules are priced, whose values are kept where no module
    determines them; by default that of this machine's CPUs, H100s or H200s. Raises InputError for a
    path without bundles, an unknown backend or topology, devices without a known topology, and if
    nothing can be measured.
    """
    given = None if topology is None else topology_of(topology)
    modules = _modules(paths, backends, progress or (lambda done, total, module: None))
    found = [each for each in modules if each.verdict == "ok"]
    if not found:
        raise InputError(
            "nothing was measured",
            got="; ".join(dict.fromkeys(each.detail for each in modules))
            or "no module" + ("" if backends is None else f" of {', '.join(backends)}"),
            expected="at least one module that runs on the devices of this machine",
        )
    base = given or _topology([each.hardware for each in found if each.hardware])
    return Measurement(modules, base, fit(base, [each.sample for each in found]))


def _modules(
    paths: Sequence[str | Path], backends: Sequence[str] | None, progress: Progress
) -> tuple[Measured, ...]:
    chosen = registry.NAMES if backends is None else registry.listed(backends)
    bundles = described(paths).items()
    jobs = [
        (job, case)
        for backend in chosen
        for (root, _), said in bundles
        if backend in said.backends
        for job in [ModuleJob(said, backend, root)]
        if (case := answers_of(said).timed(job)) is not None
    ]
    progress(0, len(jobs), None)
    modules: list[Measured] = []
    for backend in dict.fromkeys(job.backend for job, _ in jobs):
        worker = Worker("shardwright.codegen.operations.measure.worker", backend, environment={})
        try:
            for job, case in (each for each in jobs if each[0].backend == backend):
                modules.append(_module(job, case, worker))
                progress(len(modules), len(jobs), modules[-1])
        finally:
            worker.stop()
    return tuple(modules)


def _module(job: ModuleJob[Any], case: Case | MatmulCase, worker: Worker) -> Measured:
    said = case.name, job.backend, len(case.devices())
    if absent := missing(job.backend):
        return Measured(*said, "skipped", absent)
    answer = _answer(worker, case.to_json())
    if answer["verdict"] != "ok":
        return Measured(*said, answer["verdict"], answer["detail"])
    price = answers_of(job.said).price(job.said, job.backend)
    hardware = Hardware(**answer["hardware"])
    return Measured(*said, "ok", "", median(answer["seconds"]), price, hardware)


def _answer(worker: Worker, line: str) -> dict[str, Any]:
    try:
        return worker.ask(line, TIME_LIMIT)
    except EndedError as error:
        return {"verdict": "failed", "detail": f"the process that ran it {error}"}
    except LateError as error:
        return {"verdict": "failed", "detail": str(error)}


def _topology(found: Sequence[Hardware]) -> Topology:
    here = max(found, key=lambda each: each.count)
    known = {"H100": "h100", "H200": "h200"}
    names = [name for part, name in known.items() if part in here.kind]
    if here.kind == "cpu":
        names = ["cpu"]
    if not names:
        raise InputError(
            "the links between devices of this kind are unknown",
            argument="topology",
            got=f"no topology, and {here.count} devices of kind {here.kind}",
            expected="a topology, for example v5e:2x4",
        )
    return topology_of(f"{names[0]}:{here.count}")
