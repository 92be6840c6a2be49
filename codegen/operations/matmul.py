"""Matmuls, described by [[matmul]] tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from shardwright.codegen.emit.matmul import emit_described_matmul
from shardwright.codegen.operations.answers import Answers, ModuleJob, Runs, Within
from shardwright.codegen.spec.matmul import MatmulDescription

if TYPE_CHECKING:
    from shardwright.codegen.checks.matmul_case import MatmulCase
    from shardwright.codegen.checks.report import Report
    from shardwright.codegen.compile.targets import Target
    from shardwright.codegen.compile.tasks import MatmulTask
    from shardwright.codegen.measure.price import Price


class MatmulAnswers(Answers[MatmulDescription]):
    """The answers for matmuls."""

    def files(self, said: MatmulDescription, within: Within) -> dict[str, str]:
        """Return the text of every file."""
        return emit_described_matmul(said).files(said.name)

    def backends(self, said: MatmulDescription, root: Path) -> tuple[str, ...]:
        """Return those of the bundle."""
        return said.backends

    def devices(self, job: ModuleJob[MatmulDescription]) -> int:
        """Return the number of devices of the mesh; a larger one multiplies nothing."""
        from shardwright.codegen.checks.case import MAX_DEVICES

        size = job.said.matmul().mesh.size
        return size if size <= MAX_DEVICES else 0

    def report(self, job: ModuleJob[MatmulDescription], runs: Runs) -> Report:
        """Return the verdict on a module and its gradients."""
        from shardwright.codegen.verify.matmul import report_matmul

        return report_matmul(job.said, job.module, runs.runner, runs.twins)

    def tasks(self, said: MatmulDescription, root: Path, target: Target) -> Iterator[MatmulTask]:
        """Yield a bundle that has a module for the target."""
        from shardwright.codegen.compile.tasks import MatmulTask

        if {*target.takes} & {*said.backends}:
            yield MatmulTask(said, root, target)

    def timed(self, job: ModuleJob[MatmulDescription]) -> MatmulCase:
        """Return the case of a module."""
        from shardwright.codegen.checks.matmul_case import MatmulCase

        return MatmulCase.of(job.said.matmul(), job.said.name, job.backend, job.module)

    def price(self, said: MatmulDescription, backend: str) -> Price:
        """Return the predicted seconds of a module."""
        from shardwright.codegen.measure.price import price_of_matmul

        return price_of_matmul(said, backend)
