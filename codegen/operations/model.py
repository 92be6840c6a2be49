"""Models, described by [[model]] tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from shardwright.codegen.emit.model_bundle import emit_model, plan_described
from shardwright.codegen.operations.answers import Answers, ModuleJob, Runs, Within
from shardwright.codegen.spec.model import ModelDescription

if TYPE_CHECKING:
    from shardwright.codegen.checks.report import Report


class ModelAnswers(Answers[ModelDescription]):
    """The answers for models."""

    def files(self, said: ModelDescription, within: Within) -> dict[str, str]:
        """Return the text of every file."""
        return emit_model(plan_described(said), said.backends).files(said.name)

    def backends(self, said: ModelDescription, root: Path) -> tuple[str, ...]:
        """Return those of the bundle."""
        return said.backends

    def devices(self, job: ModuleJob[ModelDescription]) -> int:
        """Return the number of devices in the meshes of its rules."""
        return job.said.devices

    def report(self, job: ModuleJob[ModelDescription], runs: Runs) -> Report:
        """Return the verdict on a module and the data that it reads."""
        from shardwright.codegen.verify.model import report_model

        return report_model(job.said, job.backend, job.folder, runs.runner)
