"""Matmuls, described by [[matmul]] tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from shardwright.codegen.checks.case import MAX_DEVICES
from shardwright.codegen.checks.matmul_case import MatmulCase
from shardwright.codegen.operations.answers import (
    Answers,
    ModuleJob,
    PlanAsked,
    Printed,
    Runs,
    Within,
)
from shardwright.codegen.operations.emit.matmul import emit_described_matmul, plan_described_matmul
from shardwright.codegen.show.matmul import matmul_text
from shardwright.codegen.show.matmul_explorer import matmul_explorer
from shardwright.codegen.show.matmul_svg import matmul_svg
from shardwright.codegen.spec.matmul import MatmulDescription
from shardwright.codegen.text.docstring import TABLE_DEVICES
from shardwright.ir.errors import InputError

if TYPE_CHECKING:
    from shardwright.codegen.checks.matmul_case import MatmulCase
    from shardwright.codegen.checks.report import Report
    from shardwright.codegen.operations.compile.targets import Target
    from shardwright.codegen.operations.compile.tasks import MatmulTask
    from shardwright.codegen.operations.measure.price import Price


class MatmulAnswers(Answers[MatmulDescription]):
    """The answers for matmuls."""

    options = ("plan --explain", "show --svg", "show --html")

    def files(self, said: MatmulDescription, within: Within) -> dict[str, str]:
        return emit_described_matmul(said).files(said.name)

    def plan(self, said: MatmulDescription, asked: PlanAsked) -> Iterator[Printed]:
        made = plan_described_matmul(said)
        transfers = True if asked.transfers else None
        yield made.to_json(transfers) if asked.json else f"{matmul_text(made)}\n"

    def text(self, said: MatmulDescription) -> str:
        return f"{matmul_text(plan_described_matmul(said))}\n"

    def picture(self, said: MatmulDescription) -> str:
        """Return the picture of the plan. Raises InputError for more than TABLE_DEVICES devices."""
        made = plan_described_matmul(said)
        drawn = matmul_svg(made)
        if drawn is None:
            raise InputError(
                "the matmul has too many devices for a picture",
                argument="--svg",
                got=f"{made.matmul.mesh.size} devices",
                expected=f"at most {TABLE_DEVICES}, or --html",
            )
        return drawn

    def page(self, said: MatmulDescription, *, compare: bool) -> str:
        return matmul_explorer(plan_described_matmul(said), said.name, said.topology)

    def backends(self, said: MatmulDescription, root: Path) -> tuple[str, ...]:
        return said.backends

    def devices(self, job: ModuleJob[MatmulDescription]) -> int:
        """Return the number of devices of the mesh, or 0 for more than MAX_DEVICES devices, on
        which `verify` multiplies nothing."""

        size = job.said.matmul().mesh.size
        return size if size <= MAX_DEVICES else 0

    def report(self, job: ModuleJob[MatmulDescription], runs: Runs) -> Report:
        """Return the verdict on a module and its gradients."""
        from shardwright.codegen.operations.verify.matmuls import report_matmul

        return report_matmul(job.said, job.module, runs.runner, runs.twins)

    def tasks(self, said: MatmulDescription, root: Path, target: Target) -> Iterator[MatmulTask]:
        """Yield one task if the bundle has a module for the target."""
        from shardwright.codegen.operations.compile.tasks import MatmulTask

        if {*target.takes} & {*said.backends}:
            yield MatmulTask(said, root, target)

    def timed(self, job: ModuleJob[MatmulDescription]) -> MatmulCase:
        return MatmulCase.of(job.said.matmul(), job.said.name, job.backend, job.module)

    def price(self, said: MatmulDescription, backend: str) -> Price:
        from shardwright.codegen.operations.measure.price import price_of_matmul

        return price_of_matmul(said, backend)


ANSWERS = MatmulAnswers()
