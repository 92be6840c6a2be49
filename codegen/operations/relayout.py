"""Relayouts, described by [[relayout]] tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from shardwright.codegen.emit.relayout import emit_relayout
from shardwright.codegen.operations.answers import Answers, ModuleJob, Runs, Within
from shardwright.codegen.spec.relayout import RelayoutDescription

if TYPE_CHECKING:
    from shardwright.codegen.checks.report import Report


class RelayoutAnswers(Answers[RelayoutDescription]):
    """The answers for relayouts."""

    def files(self, said: RelayoutDescription, within: Within) -> dict[str, str]:
        """Return the text of every file."""
        return emit_relayout(said.relayout(), said.backends).files(said.name)

    def backends(self, said: RelayoutDescription, root: Path) -> tuple[str, ...]:
        """Return those of the bundle."""
        return said.backends

    def devices(self, job: ModuleJob[RelayoutDescription]) -> int:
        """Return the number of devices on both sides."""
        return job.said.devices

    def report(self, job: ModuleJob[RelayoutDescription], runs: Runs) -> Report:
        """Return the verdict on a module."""
        from shardwright.codegen.verify.relayout import report_relayout

        return report_relayout(job.said, job.backend, job.module, runs.runner)
