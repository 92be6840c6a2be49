"""Groups of reshards, described by [[group]] tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from shardwright.codegen.operations.answers import Answers, ModuleJob, Runs, Within
from shardwright.codegen.operations.emit.group import backends_of, group_files
from shardwright.codegen.spec import manifest
from shardwright.codegen.spec.group import Group
from shardwright.codegen.spec.manifest import read_manifest
from shardwright.ir.errors import InputError

if TYPE_CHECKING:
    from shardwright.codegen.checks.report import Report
    from shardwright.codegen.operations.compile.targets import Target
    from shardwright.codegen.operations.compile.tasks import GroupTask


class GroupAnswers(Answers[Group]):
    """The answers for groups."""

    def files(self, said: Group, within: Within) -> dict[str, str]:
        """Return the text of every file of the group. Raises InputError if the config lacks the
        reshard of a member."""
        config = within.config
        members = {each.name: each for each in config.reshards}
        for name in said.members:
            if name not in members:
                raise InputError(
                    f"{manifest.FILE} lists no bundle for {name}, a member of this group",
                    expected="this bundle; run `shardwright emit` on the config to write it again",
                )
        plans = {name: within.plan_of(members[name]) for name in said.members}
        return group_files(said, plans, backends_of(said, config.reshards), config.folders)

    def backends(self, said: Group, root: Path) -> tuple[str, ...]:
        return backends_of(said, read_manifest(root).members(said))

    def devices(self, job: ModuleJob[Group]) -> int:
        """Return the number of devices of the first member, since all members have the same
        devices."""
        reshard = read_manifest(job.root).members(job.said)[0].reshard()
        return len({*reshard.source.mesh.device_ids, *reshard.target.mesh.device_ids})

    def report(self, job: ModuleJob[Group], runs: Runs) -> Report:
        """Return the verdict on a group's module, which imports the modules of the members."""
        from shardwright.codegen.operations.verify.group import report_group

        members = read_manifest(job.root).members(job.said)
        given = job.said, members, job.root, job.backend
        return report_group(*given, runs.runner, runs.twins)

    def tasks(self, said: Group, root: Path, target: Target) -> Iterator[GroupTask]:
        """Yield one task if the group has a module for the target."""
        from shardwright.codegen.operations.compile.tasks import GroupTask

        if target.backend in self.backends(said, root):
            yield GroupTask(said, root, target)


ANSWERS = GroupAnswers()
