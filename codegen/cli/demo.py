"""The hidden command behind `make demo`: emit and verify reshards of a file, and report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardwright.codegen.cli.progress import bar
from shardwright.codegen.cli.tables import console, ratio, shown
from shardwright.codegen.cli.verify import verified
from shardwright.codegen.toml import load_toml

if TYPE_CHECKING:
    from shardwright.codegen.bundle import Bundle
    from shardwright.codegen.verify import Report

File = Annotated[Path, typer.Argument(metavar="FILE", help="TOML file of [[reshard]] tables.")]
Output = Annotated[Path, typer.Option("-o", "--output", help="Folder for the bundles.")]


def demo(file: File, output: Output) -> None:
    """Emit the reshards of a file, verify them, and print a table; exit code 1 on a fault."""
    bundles = _emitted(file, output)
    reports = verified(tuple(output / name for name in bundles), None)
    _print(bundles, reports)
    if any(report.verdict != "ok" for report in reports):
        raise typer.Exit(1)


def _emitted(file: Path, output: Path) -> dict[str, Bundle]:
    from shardwright.codegen.bundle import emit_described
    from shardwright.codegen.writing import write_bundles

    descriptions = load_toml(file)
    bundles: dict[str, Bundle] = {}
    with bar("emitting") as show:
        for done, description in enumerate(descriptions, 1):
            bundle = emit_described(description)
            write_bundles(output, [(description, bundle.files(description.name))])
            bundles[description.name] = bundle
            show(done, len(descriptions), description.name)
    return bundles


def _print(bundles: dict[str, Bundle], reports: tuple[Report, ...]) -> None:
    from rich.table import Column, Table

    table = Table(Column("case", overflow="fold"), "backends")
    for heading in ("devices", "bytes received", "bound", "ratio"):
        table.add_column(heading, justify="right")
    table.add_column("verdict")
    for name, bundle in bundles.items():
        mine = [report for report in reports if report.name == name]
        moved = bundle.plan.traffic.received_total
        bound = bundle.plan.traffic.bound_received_total
        table.add_row(
            name,
            "\n".join(report.backend for report in mine),
            str(bundle.plan.devices),
            f"{moved:,}",
            f"{bound:,}",
            ratio(moved, bound),
            "\n".join(shown(report.verdict) for report in mine),
        )
    console().print(table)
    for line in (f"{r.name} {r.backend}: {r.detail}" for r in reports if r.detail):
        console().print(line, markup=False)
