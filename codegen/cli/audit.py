"""`shardwright audit`: communication of a user's compiled program, and how much is redundant."""

import json as json_text
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardwright.codegen.cli.tables import console, is_wide
from shardwright.ir.errors import InputError

if TYPE_CHECKING:
    from shardwright.codegen.audit.report import AuditFinding, AuditReport, AuditRow

_KINDS = {
    "rematerialization": "every device gathers the whole tensor and keeps one of {parts} parts "
    "(XLA's involuntary full rematerialization)",
    "computed whole": "every device gathers the whole tensor, computes with it, and keeps one of "
    "{parts} parts of the result",
    "sum of which a part is kept": "every device receives the whole sum and keeps one of {parts} "
    "parts: a reduce-scatter would receive half the bytes",
}
_SHOWN = 40
"""The most rows of the table; `--json` prints all."""


@dataclass(frozen=True, kw_only=True)
class AuditCommand:
    """Show what a compiled JAX program moves between devices, and how much of it is redundant.

    FILE is its HLO after partitioning: the text of compiled.as_text(), or a file that XLA writes
    with XLA_FLAGS=--xla_dump_to=DIR. A collective in a loop counts once per iteration. Exit code 1
    if device groups are wrong.

    Example: shardwright audit step.hlo --mesh data=2,model=4
    """

    file: Annotated[Path, typer.Argument(metavar="FILE", help="HLO text of a program.")]
    mesh: Annotated[
        str | None,
        typer.Option(
            help="Mesh whose axes name the groups of devices: data=2,model=4.", show_default=False
        ),
    ] = None
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for tools.")] = False
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Write the reshards to use instead to this file, a config for `emit`.",
            show_default=False,
        ),
    ] = None

    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet", "-q", help="Print nothing if the groups are right.", show_default=False
        ),
    ] = False

    @property
    def kept(self) -> str:
        return "nothing was changed"

    def run(self) -> None:
        from shardwright.codegen.audit.audit import audit
        from shardwright.codegen.operations.emit.write import write_file
        from shardwright.ir.given import mesh_of

        mesh = None if self.mesh is None else mesh_of(self.mesh, "--mesh")
        text = _text(self.file)
        try:
            report = audit(text, mesh)
        except InputError as error:
            raise error.named(error.argument or "FILE") from None
        tables = "\n".join(filter(None, (each.toml() for each in report.findings)))
        if self.output is not None:
            _check_folder(self.output)
            write_file(self.output, tables)
        if self.json:
            print(json_text.dumps(report.to_dict(), indent=1))
        elif report.faults or not self.quiet:
            _print(report)
        if report.faults:
            raise typer.Exit(1)


def _text(path: Path) -> str:
    if path.is_dir():
        found = sorted(each.name for each in path.glob("*after_optimizations.txt"))
        raise InputError(
            "must be a file, not a folder",
            argument="FILE",
            got=str(path),
            expected=str(path / found[-1]) if found else "one HLO text",
        )
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            "the file cannot be read",
            argument="FILE",
            got=f"{path}: {getattr(error, 'strerror', None) or 'no text'}",
            expected="the text of compiled.as_text()",
        ) from None


def _check_folder(path: Path) -> None:
    if path.is_dir() or not path.parent.is_dir():
        raise InputError(
            "cannot be written",
            argument="--output",
            got=str(path),
            expected="a file in a folder that exists",
        )


def _print(report: "AuditReport") -> None:
    count = "1 collective" if len(report.rows) == 1 else f"{len(report.rows)} collectives"
    found = f", {report.redundant:,} of them redundant" if report.redundant else ""
    print(
        f"{report.module}: {report.devices} devices, {count}; the busiest device receives "
        f"{report.received:,} bytes{found}"
    )
    if report.padded != report.received:
        print(f"{report.padded:,} bytes with the padding of arrays in memory")
    _print_rows(report.rows)
    for note in report.notes:
        print(f"note: {note}")
    for row in report.faults:
        print(f"wrong groups: {row.line or row.name} {row.op}: {row.fault}")
    for number, finding in enumerate(report.findings, 1):
        print(f"\n{number}. {_said(finding)}")
    worst = next((each for each in report.findings if each.reshard is not None), None)
    if worst is not None:
        place = _short(worst.line) or worst.name
        print(f"\nthe reshard that {place} needs, for `shardwright emit FILE`:\n")
        print(worst.toml(), end="")


def _said(finding: "AuditFinding") -> str:
    what = _KINDS[finding.kind].format(parts=finding.parts)
    said = f"{finding.line or '?'} ({finding.name}): {what}; {finding.received:,} bytes received"
    if finding.suffices is None:
        return said
    return f"{said}, {finding.suffices:,} suffice: {finding.saved:,} saved"


def _print_rows(rows: "tuple[AuditRow, ...]") -> None:
    """Print a row for each set of equal collectives, those with the largest possible saving
    first."""
    from rich.markup import escape
    from rich.table import Table

    wide = is_wide()
    table = Table("line", "collective", "over", *(["array", "of"] if wide else []))
    for heading in ("times", "bytes", "redundant"):
        table.add_column(heading, justify="right", no_wrap=True)
    alike: dict[AuditRow, list[AuditRow]] = {}
    for row in rows:
        like = replace(row, times=0, received=0, padded=0, redundant=0)
        alike.setdefault(replace(like, array="", name="") if not wide else like, []).append(row)
    listed = sorted(alike.items(), key=lambda each: _order(each[1]))
    for row, same in listed[:_SHOWN]:
        texts = [
            _short(row.line) or "?",
            row.op,
            row.over,
            *([row.array, row.name] if wide else []),
        ]
        totals = ("times", "received", "redundant")
        counts = (f"{sum(getattr(each, of) for each in same):,}" for of in totals)
        times, received, redundant = counts
        times = times if row.exact else f"{times}+"
        table.add_row(*map(escape, texts), times, received, redundant)
    if rows:
        console().print(table)
    if len(listed) > _SHOWN:
        print(f"{len(listed) - _SHOWN} more rows; --json prints all")


def _order(rows: "list[AuditRow]") -> tuple[int, int]:
    """Return the sort key: the largest possible saving first, then the most bytes received."""
    return -sum(row.redundant for row in rows), -sum(row.received for row in rows)


def _short(line: str) -> str:
    """Return the file name and line number of a location, without its folders."""
    return line.rpartition("/")[2]
