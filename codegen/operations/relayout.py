"""Relayouts, described by [[relayout]] tables."""

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
from shardwright.codegen.operations.emit.relayout import emit_described_relayout
from shardwright.codegen.show.parts_svg import parts_svg
from shardwright.codegen.spec.relayout import RelayoutDescription
from shardwright.ir.relayout import plan_relayout

if TYPE_CHECKING:
    from shardwright.codegen.checks.report import Report


class RelayoutAnswers(Answers[RelayoutDescription]):
    """The answers for relayouts."""

    options = ("show --svg",)

    def files(self, said: RelayoutDescription, within: Within) -> dict[str, str]:
        return emit_described_relayout(said).files(said.name)

    def plan(self, said: RelayoutDescription, asked: PlanAsked) -> Iterator[Printed]:
        """Yield the bytes that the relayout moves, as JSON or as text."""
        made = plan_relayout(said.relayout())
        yield made.to_json() if asked.json else f"{made}\n"

    def text(self, said: RelayoutDescription) -> str:
        return emit_described_relayout(said).files(said.name)["README.md"]

    def picture(self, said: RelayoutDescription) -> str:
        """Return the picture of the source and target layouts."""
        return parts_svg(said.relayout())

    def backends(self, said: RelayoutDescription, root: Path) -> tuple[str, ...]:
        return said.backends

    def devices(self, job: ModuleJob[RelayoutDescription]) -> int:
        """Return the number of distinct devices of both sides."""
        return job.said.devices

    def report(self, job: ModuleJob[RelayoutDescription], runs: Runs) -> Report:
        from shardwright.codegen.operations.verify.relayout import report_relayout

        return report_relayout(job.said, job.backend, job.module, runs.runner)


ANSWERS = RelayoutAnswers()
