"""The hidden command behind `make demo`: emit and verify the reshards of a file, and report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardwright.codegen import registry
from shardwright.codegen.cli.progress import bar
from shardwright.codegen.cli.tables import console
from shardwright.codegen.cli.verify import details, verified
from shardwright.codegen.spec.config import load_toml
from shardwright.ir.errors import InputError, one_of

if TYPE_CHECKING:
    from shardwright.codegen.operations.emit.reshard import Bundle
    from shardwright.codegen.operations.verify import Report

ALL = "test"
"""The extra that installs the packages of every backend."""

File = Annotated[Path, typer.Argument(metavar="FILE", help="TOML file of [[reshard]] tables.")]
Output = Annotated[Path, typer.Option("-o", "--output", help="Folder for the bundles.")]
Extras = Annotated[
    str, typer.Option(help="Installed extras, separated by commas; test stands for all.")
]


def demo(file: File, output: Output, extras: Extras = ALL) -> None:
    """Emit and verify the reshards of a file and print a table; exit code 1 on a fault.

    Modules whose backend needs an extra missing from `extras` are emitted but not verified; the
    last line says so. A module that cannot run although its extra is installed is a fault.
    """
    chosen = _backends(extras)
    bundles = _emitted(file, output)
    reports = verified(tuple(output / name for name in bundles), tuple(chosen))
    _print(bundles, reports, output)
    _print_left_out(bundles, chosen)
    if not reports or any(report.verdict != "ok" for report in reports):
        raise typer.Exit(1)


def _backends(extras: str) -> dict[str, str]:
    """Return the backends that can run with these extras, and the extra that each backend needs."""
    needs = {name: registry.runtime(name).extra for name in registry.NAMES}
    known = set(needs.values())
    given = known if extras == ALL else set(extras.split(","))
    if not given <= known:
        raise InputError(
            "no such extra to verify with",
            argument="--extras",
            got=extras,
            expected=one_of([ALL, *sorted(known)]),
        )
    return {backend: extra for backend, extra in needs.items() if extra in given}


def _print_left_out(bundles: dict[str, Bundle], chosen: dict[str, str]) -> None:
    """Say which modules were not verified, and which extras are needed to verify them."""
    for backend in registry.NAMES:
        runtime = registry.runtime(backend)
        count = sum(backend in bundle.backends for bundle in bundles.values())
        if count and backend not in chosen:
            needs = f"{' and '.join(runtime.packages)} (extra {runtime.extra})"
            needs = f"{backend} ({count}), which needs {needs}"
            said = f"left out: modules of {needs}; `make demo` verifies them too"
            console().print(said, markup=False, soft_wrap=True)


def _emitted(file: Path, output: Path) -> dict[str, Bundle]:
    from shardwright.codegen.operations.emit.reshard import emit_described
    from shardwright.codegen.operations.emit.write import write_bundles

    descriptions = load_toml(file)
    bundles: dict[str, Bundle] = {}
    with bar("emitting") as show:
        for done, description in enumerate(descriptions, 1):
            bundle = emit_described(description)
            write_bundles(output, [(description, bundle.files(description.name))])
            bundles[description.name] = bundle
            show(done, len(descriptions), description.name)
    return bundles


def _print(bundles: dict[str, Bundle], reports: tuple[Report, ...], output: Path) -> None:
    """Print a row for each reshard, the faults, and the meaning of the columns."""
    from rich.table import Column, Table

    table = Table(Column("reshard", overflow="fold"))
    for heading in ("devices", "bytes received", "least possible"):
        table.add_column(heading, justify="right")
    table.add_column("modules")
    for name, bundle in bundles.items():
        traffic = bundle.plan.traffic
        bad = [each.backend for each in reports if each.name == name and each.verdict != "ok"]
        table.add_row(
            name,
            str(bundle.plan.devices),
            f"{traffic.received_total:,}",
            f"{traffic.bound_received_total:,}",
            f"[red]wrong: {', '.join(bad)}[/red]" if bad else "ok",
        )
    console().print(table)
    faults = tuple(report for report in reports if report.verdict != "ok")
    lines = details(faults)
    if not faults:
        lines.append(
            f"{len(reports)} modules of {len(bundles)} reshards ran on this CPU, large "
            "ones in a smaller size. Each result equals the oracle's, bit for bit."
        )
    lines.append("Bytes received: by all devices together; least possible: by any plan.")
    first = next(iter(bundles), "")
    page = output / first / "README.md"
    lines.append(f"Next: read {page} and a module next to it, then emit your own (README.md).")
    for line in lines:
        console().print(line, markup=False, soft_wrap=True)
