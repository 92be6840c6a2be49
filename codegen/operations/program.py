"""Programs, described by [[program]] tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from shardwright.codegen.emit.lockfile import changes
from shardwright.codegen.emit.owner import owner_path
from shardwright.codegen.emit.program import (
    LOCKFILE,
    check_budget,
    emit_program,
    partition_described,
    traced_described,
)
from shardwright.codegen.operations.answers import Answers, ModuleJob, Now, Runs, Within
from shardwright.codegen.registry import PROGRAMS
from shardwright.codegen.spec.manifest import read_manifest
from shardwright.codegen.spec.program import ProgramDescription
from shardwright.ir.errors import InputError
from shardwright.ir.mesh import Mesh

if TYPE_CHECKING:
    from shardwright.codegen.checks.report import Report


class ProgramAnswers(Answers[ProgramDescription]):
    """The answers for programs."""

    alone = True

    def files(self, said: ProgramDescription, within: Within) -> dict[str, str]:
        """Return the text of every file. Raises InputError for a program over budget."""
        return emit_program(partition_described(said), said.topology).files(said.name)

    def now(self, said: ProgramDescription, within: Within, folder: Path) -> Now:
        """Return the files, and the changes of communication. A program over budget cannot be
        emitted, so its files stay as they are."""
        bundle = emit_program(traced_described(said), said.topology)
        emitted, locked = bundle.files(said.name), folder / LOCKFILE
        before = locked.read_bytes().decode(errors="replace") if locked.is_file() else ""
        words = changes(before, emitted[LOCKFILE])
        rule = f"its communication differs from {LOCKFILE}"
        found = ((rule, "\n".join(words)),) if words else ()
        try:
            check_budget(said, bundle.program)
        except InputError as error:
            return Now(emitted, found, error)
        return Now(emitted, found)

    def backends(self, said: ProgramDescription, root: Path) -> tuple[str, ...]:
        """Return the one of programs."""
        return (PROGRAMS,)

    def devices(self, job: ModuleJob[ProgramDescription]) -> int:
        """Return the number of devices of the mesh."""
        return Mesh.parse(job.said.mesh).size

    def report(self, job: ModuleJob[ProgramDescription], runs: Runs) -> Report:
        """Return the verdict on a module, which is compared with its function."""
        from shardwright.codegen.verify.program import report_program

        owner = owner_path(job.root, read_manifest(job.root))
        home = Path() if owner is None else owner.parent
        return report_program(job.said, job.folder, home, runs.time_limit)
