"""Worker processes run the package that started them, wherever they start."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from shardwright.codegen.compile.process import _epitaph
from shardwright.codegen.processes import command, ending


def test_another_package_of_the_name_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "shardwright").mkdir()
    (tmp_path / "shardwright" / "__init__.py").write_text("raise OSError('the wrong one')")
    result = subprocess.run(
        command("shardwright", "--version"),
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("shardwright ")


def test_how_a_process_ended() -> None:
    assert [ending(code) for code in (0, 3, -9)] == ["exit code 0", "exit code 3", "SIGKILL"]


@pytest.mark.parametrize(
    ("log", "why"),
    [
        ("", ""),
        ("one\n\n  two \n", ": two"),
        (
            "F1121 07:25:11.04   18518 a.cc:60] Check failed: a != b \n@ 0x7f\n",
            ": Check failed: a != b",
        ),
    ],
)
def test_why_a_compiler_ended(tmp_path: Path, log: str, why: str) -> None:
    (tmp_path / "log").write_text(log)
    assert _epitaph(-6, tmp_path, 5) == f"the compiler's process ended with SIGABRT{why}"
