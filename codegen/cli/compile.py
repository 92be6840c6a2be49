"""`shardwright compile`: compile emitted modules with the real compilers."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardwright.codegen.cli.folders import FolderFlags
from shardwright.codegen.cli.progress import bar
from shardwright.codegen.cli.supported import note_versions
from shardwright.codegen.cli.tables import console, is_wide, shown
from shardwright.codegen.operations.compile import CompileReport, GpuCode, TpuCode
from shardwright.codegen.operations.compile.targets import compilers
from shardwright.ir.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

# The columns that a narrow terminal omits.
_TPU_LEFT_OUT, _XLA_LEFT_OUT, _GPU_LEFT_OUT = (1, 2), (0, 1), (0, 3, 4, 6)
_FLAGS = {"targets": "--for", "save": "--save"}


@dataclass(frozen=True, kw_only=True)
class CompileCommand(FolderFlags):
    """Compile emitted modules for TPUs and GPUs.

    Runs without an accelerator. TPU modules compile with `jax_enable_x64` off and on; the figures
    shown are for off, unless elements have 64 bits. A reshard described by flags is emitted first.
    Exit code 1 if a module does not compile.

    Example: shardwright compile generated --for v5e:2x4 --for h100
    """

    targets: Annotated[
        list[str],
        typer.Option(
            "--for",
            metavar="TARGET",
            help="A TPU topology (v5e:2x4) or a GPU architecture (sm_90); may be repeated.",
        ),
    ]
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder for the compiled binaries and assembly, or jax.export files.",
        ),
    ] = None
    xla: Annotated[
        bool, typer.Option("--xla/--no-xla", help="Also compile XLA's own reshard, to compare.")
    ] = True

    @property
    def beside(self) -> tuple[str, ...]:
        return ("name",)

    @property
    def kept(self) -> str:
        if self.save is None:
            return "nothing was changed"
        return f"the programs compiled so far are in {self.save}"

    def run(self) -> None:
        """Print the resources that each module takes on each target."""
        try:
            with self.folders() as folders:
                reports = _compiled(folders, tuple(self.targets), self.save, self.xla)
        except InputError as error:
            raise error.named(_FLAGS.get(error.argument or "", error.argument)) from None
        if all(report.verdict == "skipped" for report in reports):
            raise InputError(
                "nothing was compiled",
                got="; ".join(dict.fromkeys(f"{r.name}: {r.detail}" for r in reports))
                or "no bundle",
                expected="at least one module for one of the targets",
            )
        _print(reports)
        note_versions(report.backend for report in reports)
        if any(report.verdict == "failed" for report in reports):
            raise typer.Exit(1)


def _compiled(
    folders: tuple[Path, ...], targets: tuple[str, ...], save: Path | None, xla: bool
) -> tuple[CompileReport, ...]:
    from shardwright.codegen.operations.bundles.compile import compile_bundles

    with bar("compiling") as show:

        def progress(done: int, total: int, report: CompileReport | None) -> None:
            last = "" if report is None else f"{report.name} {report.target}: {report.verdict}"
            show(done, total, last)

        return compile_bundles(folders, targets, save=save, xla=xla, progress=progress)


def _print(reports: tuple[CompileReport, ...]) -> None:

    for backend, compiler in compilers().items():
        mine = [report for report in reports if report.backend == backend]
        if mine:
            console().print(_tpu(mine) if compiler.is_xla else _gpu(mine))
    for report in reports:
        where = f"{report.name} for {report.target}"
        if report.detail:
            print(f"{where}: {report.detail}")
        if report.best:
            print(f"{where}: {report.best}")
        if report.xla is not None and report.xla.error not in ("", report.detail):
            print(f"{where}, XLA's own: {report.xla.error}")


def _table(columns: tuple[str, ...]) -> "Table":
    from rich.table import Table

    table = Table()
    table.add_column("bundle", overflow="fold")
    table.add_column("for")
    table.add_column("verdict")
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _row(report: CompileReport) -> tuple[str, str, str]:
    from rich.markup import escape

    return escape(report.name), report.target, shown(report.verdict)


def _tpu(reports: list[CompileReport]) -> "Table":
    """Return a table of each module's resources per device, next to those of XLA's own reshard. A
    narrow terminal omits the least important columns."""
    table = _table(_roomy(("s", "code", "temp", "VMEM", "wire"), _TPU_LEFT_OUT))
    table.caption = (
        "Bytes per device, K is 1024; wire: the bytes into the busiest device, with padding and "
        "forwarded data, over the least possible."
    )
    if compared := any(report.xla is not None for report in reports):
        for column in _roomy(("XLA\ns", "XLA\ncode", "XLA\nwire"), _XLA_LEFT_OUT):
            table.add_column(column, justify="right")
    for report in reports:
        xla = _roomy(_xla(report), _XLA_LEFT_OUT) if compared else ()
        table.add_row(*_row(report), *_roomy(_ours(report), _TPU_LEFT_OUT), *xla)
    return table


def _roomy(cells: tuple[str, ...], left_out: tuple[int, ...]) -> tuple[str, ...]:
    """Return the cells that fit; `left_out` has the indices that a narrow terminal omits."""
    return tuple(cell for at, cell in enumerate(cells) if is_wide() or at not in left_out)


def _ours(report: CompileReport) -> tuple[str, ...]:
    code = report.code
    if not isinstance(code, TpuCode):
        return ("-",) * 5
    sizes = (code.code_bytes, code.temporary_bytes, code.vmem_bytes)
    return (_seconds(code), *map(_size, sizes), _wire(code, report))


def _xla(report: CompileReport) -> tuple[str, ...]:
    if report.xla is None:
        return ("-",) * 3
    code = report.xla.code
    if not isinstance(code, TpuCode):
        return "-", "failed", "-"
    return _seconds(code), _size(code.code_bytes), _wire(code, report)


def _seconds(code: TpuCode) -> str:
    """Return the seconds of lowering plus compiling, as text."""
    return f"{code.lower_seconds + code.compile_seconds:.2f}"


def _wire(code: TpuCode, report: CompileReport) -> str:
    from shardwright.codegen.operations.emit.verdict import TOLD_AS_BYTES
    from shardwright.codegen.show.tables import ratio

    moved, bound = code.wire_bytes, report.bound_bytes
    if moved is None or bound is None:
        return "-"
    if not bound:
        return _size(moved)
    if moved < TOLD_AS_BYTES:  # a small tensor is mostly padding
        return f"{moved} B"
    return ratio(moved, bound) if moved < 10 * bound else f"{moved / bound:.0f}"


def _size(size: int | None) -> str:
    """Format a number of bytes in the largest unit that gives at least ten: `64K`, `5120K`,
    `12M`."""
    if size is None:
        return "-"
    for power, unit in ((30, "G"), (20, "M"), (10, "K")):
        if size >= 10 << power:
            return f"{size / 2**power:.0f}{unit}"
    return str(size)


def _gpu(reports: list[CompileReport]) -> "Table":
    """Return a table of each module's resources. One binary serves all devices; registers and stack
    are per thread."""
    columns: tuple[str, ...] = ("seconds", "registers", "stack B", "shared B", "binary B")
    columns = (*columns, "16 B loads", "stores", "divisions")
    table = _table(_roomy(columns, _GPU_LEFT_OUT))
    table.caption = (
        "One binary serves all devices: positions are arguments. The stack holds spilled "
        "registers. Divisions: integer divisions, in loops and in total."
    )
    cells: tuple[str, ...]
    for report in reports:
        code, cells = report.code, ("-",) * 8
        if isinstance(code, GpuCode):
            used = ("-" if n is None else str(n) for n in (code.registers, code.stack_bytes))
            sizes = (str(code.shared_bytes), str(code.binary_bytes))
            wide = f"{code.wide_loads} of {code.loads}", f"{code.wide_stores} of {code.stores}"
            divided = f"{code.looped_divisions}, {code.divisions}"
            cells = (f"{code.seconds:.2f}", *used, *sizes, *wide, divided)
        table.add_row(*_row(report), *_roomy(cells, _GPU_LEFT_OUT))
    return table
