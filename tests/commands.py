"""Running commands in the test's own process, and what they are given."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from typer.testing import CliRunner

import shardwright as sw
from shardwright.codegen.cli import app, progress
from shardwright.codegen.spec.description import describe

# However busy the machine is, a command prints nothing but what it says in the end.
progress.PATIENCE = 600.0

TRANSPOSE = {
    "--mesh": "x=2,y=3",
    "--shape": "6x6",
    "--dtype": "float32",
    "--source": '[{"x"}, {"y"}]',
    "--target": '[{"y"}, {"x"}]',
}
TABLES = """\
[[reshard]]
name = "first"
mesh = "x=2,y=3"
shape = [6, 6]
dtype = "float32"
source = '[{"x"}, {"y"}]'
target = '[{"y"}, {"x"}]'

[[reshard]]
name = "second"
mesh = "x=4"
shape = [5]
dtype = "int8"
source = '[{"x"}]'
target = '[{}]'
"""


def flags(**changes: str | None) -> list[str]:
    """The flags of the transposition, changed; None leaves one out."""
    given: dict[str, str | None] = {**TRANSPOSE}
    given |= {"--" + key.replace("_", "-"): value for key, value in changes.items()}
    return [word for key, value in given.items() if value is not None for word in (key, value)]


def described() -> sw.Reshard:
    """The transposition."""
    texts = {key.removeprefix("--"): text for key, text in TRANSPOSE.items()}
    return describe({"name": "a", **texts}).reshard()


def run(*words: str | Path) -> SimpleNamespace:
    """Run a command; `out` and `err` are what it prints."""
    result = CliRunner().invoke(app, [str(word) for word in words], prog_name="shardwright")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return SimpleNamespace(code=result.exit_code, out=result.stdout, err=result.stderr)


def ok(*words: str | Path) -> str:
    """What a command prints that succeeds."""
    result = run(*words)
    assert result.code == 0, result.err
    return str(result.out)


def mistake(*words: str | Path) -> str:
    """What a command says that is refused: on standard error, nothing on standard output."""
    result = run(*words)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error: ")
    return str(result.err).removeprefix("error: ").rstrip("\n")


def files(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}
