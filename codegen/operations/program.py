"""Programs, described by [[program]] tables."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from shardwright.codegen import registry
from shardwright.codegen.operations.answers import (
    Answers,
    ModuleJob,
    Now,
    PlanAsked,
    Printed,
    Runs,
    Within,
)
from shardwright.codegen.operations.emit.lockfile import changes
from shardwright.codegen.operations.emit.owner import owner_path
from shardwright.codegen.operations.emit.program import (
    LOCKFILE,
    check_budget,
    emit_program,
    partition_described,
    traced_described,
)
from shardwright.codegen.partition.partitioned import Partitioned
from shardwright.codegen.registry import PROGRAMS
from shardwright.codegen.show.program import show_program
from shardwright.codegen.show.program_explorer import program_explorer
from shardwright.codegen.show.program_review import program_text, remedies_text
from shardwright.codegen.show.program_svg import program_svg
from shardwright.codegen.show.tables import ratio
from shardwright.codegen.spec.manifest import read_manifest
from shardwright.codegen.spec.program import ProgramDescription
from shardwright.ir.errors import InputError
from shardwright.ir.mesh import Mesh

if TYPE_CHECKING:
    from shardwright.codegen.checks.report import Report


class ProgramAnswers(Answers[ProgramDescription]):
    """The answers for programs."""

    options = ("plan --compare", "plan --explain", "show --svg", "show --html", "show --compare")

    alone = True

    def files(self, said: ProgramDescription, within: Within) -> dict[str, str]:
        """Return the text of every file. Raises InputError if the program exceeds its budget."""
        return emit_program(partition_described(said), said.topology).files(said.name)

    def now(self, said: ProgramDescription, within: Within, folder: Path) -> Now:
        """Return the files, a diff if the communication differs from the lockfile, and an error if
        the program exceeds its budget."""
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

    def plan(self, said: ProgramDescription, asked: PlanAsked) -> Iterator[Printed]:
        """Yield the program's communication, then raise InputError if it exceeds the budget."""
        program = traced_described(said)
        if asked.json:
            yield emit_program(program, said.topology).files(said.name)[LOCKFILE]
        else:
            kernels = registry.program_backend().kernel_lines(program)
            yield program_text(program, said.topology, kernels=kernels)
        if asked.explain:
            yield remedies_text(program)
        if asked.compare:
            yield from _compared(program, said)
        check_budget(said, program)

    def text(self, said: ProgramDescription) -> str:
        """Return the program next to its source lines, whose paths are relative to the user's
        folder."""
        program = traced_described(said)
        with contextlib.chdir(said.home):
            return f"{show_program(program.program)}\n"

    def picture(self, said: ProgramDescription) -> str:
        return program_svg(traced_described(said))

    def page(self, said: ProgramDescription, *, compare: bool) -> str:
        from shardwright.codegen.operations.compile.totals import totals

        program = traced_described(said)
        others = [asdict(each) for each in totals(program, said)[1:]] if compare else []
        with contextlib.chdir(said.home):
            return program_explorer(program, said.name, said.topology, others)

    def backends(self, said: ProgramDescription, root: Path) -> tuple[str, ...]:
        return (PROGRAMS,)

    def devices(self, job: ModuleJob[ProgramDescription]) -> int:
        return Mesh.parse(job.said.mesh).size

    def report(self, job: ModuleJob[ProgramDescription], runs: Runs) -> Report:
        """Return the verdict on a module, which is compared with its function."""
        from shardwright.codegen.operations.verify.program import report_program

        owner = owner_path(job.root, read_manifest(job.root))
        home = Path() if owner is None else owner.parent
        return report_program(job.said, job.folder, home, runs.time_limit)


ANSWERS = ProgramAnswers()


def _compared(program: Partitioned, said: ProgramDescription) -> Iterator[Printed]:
    from rich.table import Table

    from shardwright.codegen.operations.compile.totals import totals

    rows = totals(program, said)
    table = Table("way")
    for heading in ("bytes", "beside ours"):
        table.add_column(heading, justify="right")
    ours = program.bytes_received
    for row in rows:
        text = "?" if row.received is None else f"{row.received:,}"
        beside = ratio(row.received, ours) if row.received is not None and ours else ""
        table.add_row(row.name, text, beside)
    yield table
    yield "bytes received by the busiest device; on TPUs float32 that XLA narrows counts as such\n"
    for row in rows:
        if row.why:
            yield f"{row.name}: {row.why}\n"
