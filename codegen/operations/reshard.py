"""Reshards, described by [[reshard]] and [[collective]] tables or by flags."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from shardwright.codegen.checks.case import Case
from shardwright.codegen.operations.answers import (
    Answers,
    ModuleJob,
    PlanAsked,
    Printed,
    Runs,
    Within,
)
from shardwright.codegen.operations.emit.choice import planned
from shardwright.codegen.operations.emit.reshard import emit_described
from shardwright.codegen.spec.description import Description

if TYPE_CHECKING:
    from shardwright.codegen.checks.case import Case
    from shardwright.codegen.checks.report import Report
    from shardwright.codegen.operations.compile.targets import Target
    from shardwright.codegen.operations.compile.tasks import BundleTask
    from shardwright.codegen.operations.measure.price import Price


class ReshardAnswers(Answers[Description]):
    """The answers for reshards."""

    options = ("plan --compare", "plan --explain", "plan --relabel", "show --svg", "show --html")

    def files(self, said: Description, within: Within) -> dict[str, str]:
        """Return the text of every file, and store the plan in `within` for groups."""
        bundle = emit_described(said)
        bundle.check_features(within.features.get(said.name, ()))
        within.plans[said.name] = bundle.plan
        return bundle.files(said.name)

    def plan(self, said: Description, asked: PlanAsked) -> Iterator[Printed]:
        """Yield the plan that `emit` writes, or a comparison of plans."""
        from shardwright.codegen.operations.reshard_plan import plan_printed

        return plan_printed(said, asked)

    def text(self, said: Description) -> str:
        """Return the derivation, the tiles and their pictures."""
        from shardwright.codegen.operations.reshard_plan import shown

        return shown(said)

    def picture(self, said: Description) -> str:
        """Return a picture of the rings if modules reduce along rings, otherwise of the tiles."""
        from shardwright.codegen.operations.reshard_plan import picture

        return picture(said)

    def page(self, said: Description, *, compare: bool) -> str:
        from shardwright.codegen.show.explorer import explorer

        return explorer(planned(said), said.name, said.topology)

    def backends(self, said: Description, root: Path) -> tuple[str, ...]:
        return said.backends

    def devices(self, job: ModuleJob[Description]) -> int:
        """Return the number of distinct devices of both meshes."""
        reshard = job.said.reshard()
        return len({*reshard.source.mesh.device_ids, *reshard.target.mesh.device_ids})

    def report(self, job: ModuleJob[Description], runs: Runs) -> Report:
        from shardwright.codegen.operations.verify import single

        return single.report(job.said, job.module, runs.runner, runs.twins)

    def tasks(self, said: Description, root: Path, target: Target) -> Iterator[BundleTask]:
        from shardwright.codegen.operations.compile.tasks import BundleTask

        yield BundleTask(said, root, target)

    def timed(self, job: ModuleJob[Description]) -> Case:
        return Case.of(job.said.reshard(), job.said.name, job.backend, job.module)

    def price(self, said: Description, backend: str) -> Price:
        """Return the price function of a module, which is the price of its timeline."""
        from shardwright.codegen.operations.measure.price import price_of_reshard

        return price_of_reshard(planned(said), backend)


ANSWERS = ReshardAnswers()
