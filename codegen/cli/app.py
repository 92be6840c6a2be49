"""The command `shardwright`: its subcommands, and its exit after a user's mistake."""

from __future__ import annotations

import errno
import gc
import io
import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from shardwright import __version__
from shardwright.codegen.cli.audit import AuditCommand
from shardwright.codegen.cli.check import CheckCommand
from shardwright.codegen.cli.compare import compare, learn
from shardwright.codegen.cli.compile import CompileCommand
from shardwright.codegen.cli.demo import demo
from shardwright.codegen.cli.emit import EmitCommand
from shardwright.codegen.cli.flags import Flags
from shardwright.codegen.cli.measure import MeasureCommand
from shardwright.codegen.cli.plan import PlanCommand
from shardwright.codegen.cli.progress import be_quiet
from shardwright.codegen.cli.show import ShowCommand
from shardwright.codegen.cli.verify import VerifyCommand
from shardwright.codegen.hardware.chips import unknown_slice
from shardwright.ir.errors import InputError

# Errors that mean that the disk is full. Commands that write bundles report these themselves.
FULL = (errno.ENOSPC, errno.EDQUOT)
# The exit status that shells give a program ended by Ctrl-C.
INTERRUPTED = 130


class Commands(TyperGroup):
    """A group whose commands exit with code 2 and one message on an InputError."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except InputError as error:
            print(f"error: {error}", file=sys.stderr)
            raise typer.Exit(2) from None


def _carry_out(command: Flags | AuditCommand | None, **_: object) -> None:
    """Run a command that is a dataclass of flags. Typer has already run a command that is a plain
    function."""
    if command is None:
        return
    be_quiet(command.quiet)
    if isinstance(command, Flags) and (odd := unknown_slice(command.topology or "")):
        print(f"warning: --topology: {odd}", file=sys.stderr)
    try:
        command.run()
    except KeyboardInterrupt:
        print(f"stopped: {command.kept}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    finally:
        be_quiet(False)


app = typer.Typer(
    cls=Commands,
    result_callback=_carry_out,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(asked: bool) -> None:
    if asked:
        print(f"shardwright {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """From two shardings of one tensor to kernels a person can read."""


app.command("emit")(EmitCommand)
app.command("plan")(PlanCommand)
app.command("show")(ShowCommand)
app.command("verify")(VerifyCommand)
app.command("compile")(CompileCommand)
app.command("measure")(MeasureCommand)
app.command("check")(CheckCommand)
app.command("audit")(AuditCommand)
app.command("compare")(compare)
app.command("learn")(learn)
app.command(hidden=True)(demo)


def main() -> None:
    """Run the console script, printing UTF-8 in every locale."""
    for stream, errors in ((sys.stdout, "surrogateescape"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors)
    gc.freeze()  # what is imported stays to the end, so collections need not visit it
    try:
        app(prog_name="shardwright")
    except OSError as error:
        if error.filename is not None or error.errno not in FULL:
            raise
        # Python flushes standard output again at exit, which must not fail a second time.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        print(f"error: cannot write to standard output: {error.strerror}", file=sys.stderr)
        sys.exit(1)
