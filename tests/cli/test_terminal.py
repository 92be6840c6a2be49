"""The command line on a terminal and in a pipe: widths, progress, quiet, completion, Ctrl-C."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import TABLES, files, flags, ok, run

from shardwright.codegen.cli import progress
from shardwright.codegen.cli.progress import bar, be_quiet
from shardwright.codegen.cli.verify import details
from shardwright.codegen.operations.verify import Report

COMMANDS = (
    "emit",
    "plan",
    "show",
    "verify",
    "compile",
    "measure",
    "check",
    "audit",
    "compare",
    "learn",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    said = ok(command, "--help")
    (example,) = re.findall(r"Example: (shardwright (?:.+\n)+)", said)
    assert shlex.split(example)[1] == command
    assert "--quiet" in said


@pytest.mark.parametrize("command", ["plan", "show"])
def test_examples_run(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    (example,) = re.findall(r"Example: (shardwright (?:.+\n)+)", ok(command, "--help"))
    assert ok(*shlex.split(example)[1:])


@pytest.mark.parametrize("columns", [80, 120])
def test_tables_fit(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    said = ok("plan", *flags(), "--topology", "v5e:2x4", "--explain")
    tables = [line for line in said.splitlines() if line[:1] in "┏┡│└" and line]
    assert len(tables) > 10
    assert max(map(len, tables)) <= columns


def test_columns_are_heard_in_a_pipe() -> None:
    words = [sys.executable, "-m", "shardwright", "plan", *flags()]
    wide = {}
    for columns in ("60", "100"):
        env = {**os.environ, "COLUMNS": columns}
        done = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
        wide[columns] = max(len(line) for line in done.stdout.splitlines() if line[:1] == "│")
        assert wide[columns] <= int(columns)


def test_quiet_says_nothing_of_what_went_well(tmp_path: Path) -> None:
    assert ok("emit", *flags(name="a", backends="jax_xla"), "-o", tmp_path / "out", "-q") == ""
    assert ok("check", tmp_path / "out", "--quiet") == ""
    path = tmp_path / "out/a/plan.json"
    path.write_text("{}")
    assert "a/plan.json: edited by hand" in run("check", tmp_path / "out", "-q").out


def test_progress_in_a_pipe_is_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At most one in PATIENCE seconds, and one now and then where one thing takes long."""
    monkeypatch.setattr(progress, "PATIENCE", 0.1)
    monkeypatch.setattr(progress, "EVERY", 0.2)
    with bar("verifying") as show:
        show(0, 2, "")
        time.sleep(0.7)
        show(1, 2, "weights jax_xla: ok")
        time.sleep(0.2)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "verifying 0 of 2 (0 s)"
    assert sum(line.startswith("verifying 0 of 2") for line in lines) >= 2
    assert lines[-1].startswith("verifying 1 of 2: weights jax_xla: ok (")
    assert len(lines) <= 10


def test_short_work_and_quiet_show_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    with bar("emitting") as show:
        show(1, 2, "a")
    be_quiet(True)
    try:
        with bar("emitting") as show:
            show(1, 2, "a")
    finally:
        be_quiet(False)
    assert capsys.readouterr().err == ""


def test_details_are_a_line_a_bundle_and_a_legend() -> None:
    twin = "twin 8x8; at full size: text"
    reports = (
        Report("a", "pallas_tpu", 8, "ok", twin),
        Report("a", "triton_gpu", 8, "ok", twin),
        Report("b", "triton_gpu", 8, "failed", "device 3 differs"),
        Report("c", "triton_gpu", 8, "ok"),
    )
    assert details(reports) == [
        f"a pallas_tpu, triton_gpu: {twin}",
        "b triton_gpu: device 3 differs",
        "twin: a smaller tensor, or one on fewer devices, run in place of one too large",
    ]
    assert details(reports[2:]) == ["b triton_gpu: device 3 differs"]


def test_completion_knows_the_names_of_the_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shardwright.toml").write_text(TABLES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("_SHARDWRIGHT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "shardwright plan f")
    monkeypatch.setenv("COMP_CWORD", "2")
    words = [sys.executable, "-m", "shardwright"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.split() == ["first"]


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (("plan",), "nothing was changed"),
        (
            ("emit", "-o", "out"),
            "bundles are moved into place once all are complete, so none",
        ),
    ],
)
def test_an_interrupt_says_what_was_kept(
    words: tuple[str, ...], kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("shardwright.codegen.operations.emit.choice.plan_reshard", interrupted)
    monkeypatch.setattr("shardwright.codegen.operations.reshard.emit_described", interrupted)
    result = run(*words, *flags(name="a"))
    assert (result.code, result.out) == (130, "")
    assert result.err.startswith(f"stopped: {kept}")
    assert files(tmp_path) == {}
