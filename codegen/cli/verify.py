"""`shardwright verify`: run emitted modules against the oracle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardwright.codegen.cli.progress import progress
from shardwright.codegen.describe import split_backends
from shardwright.ir.errors import InputError

if TYPE_CHECKING:
    from shardwright.codegen.verify import Report

Folders = Annotated[
    list[Path], typer.Argument(metavar="DIR...", help="Folders that `emit -o` wrote, or bundles.")
]
Backends = Annotated[
    str | None, typer.Option(help="Which modules to run, with commas between (default: all).")
]


def verify(folders: Folders, backends: Backends = None) -> None:
    """Run emitted modules against the oracle.

    Runs here, without an accelerator. Exit code 1 if a module fails, 2 if none could be run.
    """
    chosen = None if backends is None else split_backends(backends)
    try:
        reports = verified(tuple(folders), chosen)
    except InputError as error:
        raise error.named("--backends") if error.argument == "backends" else error from None
    _print(reports)
    if any(report.verdict == "failed" for report in reports):
        raise typer.Exit(1)
    if not any(report.verdict == "ok" for report in reports):
        raise InputError(
            "nothing was verified",
            got="; ".join(dict.fromkeys(report.detail for report in reports)) or "no module",
            expected="at least one module that can run here",
        )


def verified(folders: tuple[Path, ...], backends: tuple[str, ...] | None) -> tuple[Report, ...]:
    """The reports on bundles, with a progress bar while they are made."""
    from shardwright.codegen import verify as verifier

    with progress() as display:
        task = display.add_task("verifying", total=None, last="")

        def show(done: int, total: int, report: Report | None) -> None:
            last = "" if report is None else f"{report.name} {report.backend}: {report.verdict}"
            display.update(task, completed=done, total=total, last=last)

        return verifier.verify(folders, backends=backends, progress=show)


def _print(reports: tuple[Report, ...]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("bundle", "backend")
    table.add_column("devices", justify="right")
    table.add_column("verdict")
    table.add_column("seconds", justify="right")
    table.add_column("detail", overflow="fold")
    for report in reports:
        row = (report.name, report.backend, str(report.devices), shown(report.verdict))
        table.add_row(*row, f"{report.seconds:.1f}", _escaped(report.detail))
    Console().print(table)


def shown(verdict: str) -> str:
    """A verdict in its colour."""
    colour = {"ok": "green", "failed": "bold red"}.get(verdict, "yellow")
    return f"[{colour}]{verdict}[/]"


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)
