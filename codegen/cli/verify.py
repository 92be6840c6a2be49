"""`shardwright verify`: run emitted modules and compare them with the oracle."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from shardwright.codegen.cli.folders import FolderFlags
from shardwright.codegen.cli.progress import bar
from shardwright.codegen.cli.supported import note_versions
from shardwright.codegen.cli.tables import console, shown
from shardwright.codegen.spec.fields import split_backends
from shardwright.ir.errors import InputError

if TYPE_CHECKING:
    from shardwright.codegen.operations.verify import Report


@dataclass(frozen=True, kw_only=True)
class VerifyCommand(FolderFlags):
    """Run emitted modules and compare their results with the oracle.

    Runs without an accelerator; `--backends` selects modules. A reshard described by flags is
    emitted first. Exit code 1 if a module fails, 2 if none could run.

    Example: shardwright verify generated --backends jax_xla
    """

    def run(self) -> None:
        """Print a verdict for each module."""
        chosen = None if self.backends is None else split_backends(self.backends)
        try:
            with self.folders() as folders:
                reports = verified(folders, chosen)
        except InputError as error:
            raise error.named("--backends") if error.argument == "backends" else error from None
        said = [each for each in reports if each.verdict != "ok" or not self.quiet]
        _print(tuple(said))
        note_versions(report.backend for report in reports)
        if any(report.verdict == "failed" for report in reports):
            raise typer.Exit(1)
        if not any(report.verdict == "ok" for report in reports):
            raise InputError(
                "nothing was verified",
                got="; ".join(dict.fromkeys(report.detail for report in reports)) or "no module",
                expected="at least one module that can run here",
            )


def verified(folders: tuple[Path, ...], backends: tuple[str, ...] | None) -> "tuple[Report, ...]":
    """Verify the bundles with a progress bar and return the reports."""
    from shardwright.codegen.operations.bundles.verify import verify

    with bar("verifying") as show:

        def progress(done: int, total: int, report: "Report | None") -> None:
            last = "" if report is None else f"{report.name} {report.backend}: {report.verdict}"
            show(done, total, last)

        return verify(folders, backends=backends, progress=progress)


def _print(reports: "tuple[Report, ...]") -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table("bundle", "backend")
    table.add_column("devices", justify="right")
    table.add_column("verdict")
    table.add_column("seconds", justify="right")
    for report in reports:
        row = (escape(report.name), report.backend, str(report.devices), shown(report.verdict))
        table.add_row(*row, f"{report.seconds:.1f}")
    if reports:
        console().print(table)
    for line in details(reports):
        print(line)


def details(reports: "tuple[Report, ...]") -> list[str]:
    """Return lines about the details of the reports. Modules of a bundle with the same detail share
    a line. If any module is a twin, a last line explains twins."""
    said: dict[tuple[str, str], list[str]] = {}
    for report in reports:
        if report.detail:
            said.setdefault((report.name, report.detail), []).append(report.backend)
    lines = [f"{name} {', '.join(who)}: {detail}" for (name, detail), who in said.items()]
    legend = ["twin: a smaller tensor, or one on fewer devices, run in place of one too large"]
    return lines + legend * any("twin" in line for line in lines)
