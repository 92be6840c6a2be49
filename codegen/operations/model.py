"""Models, described by [[model]] tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from shardwright.codegen.operations.answers import (
    Answers,
    ModuleJob,
    PlanAsked,
    Printed,
    Runs,
    Within,
)
from shardwright.codegen.operations.emit.model_bundle import emit_model, plan_described
from shardwright.codegen.show.model_explorer import model_explorer
from shardwright.codegen.spec.model import ModelDescription
from shardwright.ir.model_proof import prove

if TYPE_CHECKING:
    from shardwright.codegen.checks.report import Report


class ModelAnswers(Answers[ModelDescription]):
    """The answers for models."""

    options = ("show --html",)

    def files(self, said: ModelDescription, within: Within) -> dict[str, str]:
        return emit_model(plan_described(said), said.backends).files(said.name)

    def plan(self, said: ModelDescription, asked: PlanAsked) -> Iterator[Printed]:
        """Yield the plan as JSON, or as text with the result of its proof."""
        made = plan_described(said)
        yield made.to_json() if asked.json else f"{made}\n{prove(made)}\n"

    def text(self, said: ModelDescription) -> str:
        return emit_model(plan_described(said), said.backends).files(said.name)["README.md"]

    def page(self, said: ModelDescription, *, compare: bool) -> str:
        return model_explorer(plan_described(said), said.name)

    def backends(self, said: ModelDescription, root: Path) -> tuple[str, ...]:
        return said.backends

    def devices(self, job: ModuleJob[ModelDescription]) -> int:
        """Return the number of devices in the meshes of the model's rules."""
        return job.said.devices

    def report(self, job: ModuleJob[ModelDescription], runs: Runs) -> Report:
        """Return the verdict on a module and the data that it reads."""
        from shardwright.codegen.operations.verify.model import report_model

        return report_model(job.said, job.backend, job.folder, runs.runner)


ANSWERS = ModelAnswers()
