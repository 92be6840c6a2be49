"""Worker processes run the package that started them, wherever they start."""

from __future__ import annotations

import os
import py_compile
import subprocess
import sys
from pathlib import Path

import pytest

import shardwright as sw
from shardwright.codegen.compile.process import _epitaph
from shardwright.codegen.verify import verify
from shardwright.codegen.workers.process import command, ending


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


def test_bytecode_of_an_earlier_text_is_not_run(tmp_path: Path) -> None:
    """A module that was imported, and edited in the same second to a text of the same length."""
    pytest.importorskip("jax")
    mesh = sw.Mesh({"x": 2})
    reshard = sw.Reshard((4, 2), "int8", mesh.sharding('[{"x"}, {}]'), mesh.sharding("[{}, {}]"))
    sw.emit(reshard, ("jax_xla",)).write(tmp_path / "a")
    path = tmp_path / "a/jax_xla.py"
    py_compile.compile(str(path))
    before = path.stat()
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('DTYPE = "int8"', 'DTYPE = "int9"'), encoding="utf-8")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    run = [sys.executable, "-c", "import jax_xla; print(jax_xla.DTYPE)"]
    stale = subprocess.run(run, cwd=path.parent, capture_output=True, text=True, check=True)
    assert stale.stdout == "int8\n"  # that is what Python does
    (report,) = verify(tmp_path)
    assert (report.verdict, report.detail) == ("failed", "DTYPE: got: 'int9', expected: 'int8'")


def test_verifying_leaves_nothing_in_the_folder(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    mesh = sw.Mesh({"x": 2})
    reshard = sw.Reshard((4, 2), "int8", mesh.sharding('[{"x"}, {}]'), mesh.sharding("[{}, {}]"))
    sw.emit(reshard, ("jax_xla",)).write(tmp_path / "a")
    before = sorted(tmp_path.rglob("*"))
    (report,) = verify(tmp_path)
    assert report.verdict == "ok"
    assert sorted(tmp_path.rglob("*")) == before
