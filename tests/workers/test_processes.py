"""Worker processes run the package that started them, wherever they start."""

from __future__ import annotations

import os
import py_compile
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import shardwright as sw
from shardwright.codegen.checks.workers import worker
from shardwright.codegen.checks.workers.worker import (
    EndedError,
    LateError,
    Worker,
    command,
    epitaph,
    with_own,
)
from shardwright.codegen.operations.bundles.verify import verify


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


@pytest.mark.parametrize(
    ("code", "log", "how"),
    [
        (0, "", "exit code 0"),
        (3, "one\n\n  two \n", "exit code 3: two"),
        (-9, "", "SIGKILL"),
        (
            -6,
            "F1121 07:25:11.04   18518 a.cc:60] Check failed: a != b \n@ 0x7f\n",
            "SIGABRT: Check failed: a != b",
        ),
    ],
)
def test_how_a_process_ended(code: int, log: str, how: str) -> None:
    assert epitaph(code, log) == f"ended with {how}"


SERVES = """
import json, os, sys, time
from shardwright.codegen.checks.workers.serve import serve

def answer(line):
    what = json.loads(line)
    print("asked", what, flush=True)
    if what == "die":
        os.abort()
    if what == "wait":
        time.sleep(1000)
    if what == "babble":
        os.write(answers, b"no JSON\\n")
        time.sleep(1000)
    return {"pid": os.getpid(), "argument": sys.argv[1]}

answers = os.dup(1)
serve(lambda: answer)
"""


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    """A worker that answers with its process id and its argument, dies, waits or babbles."""
    start = [sys.executable, "-c", SERVES]
    monkeypatch.setattr(worker, "command", lambda _, *words: [*start, *words])
    made = Worker("unused", "word", environment={})
    yield made
    made.stop()


def test_a_worker_answers_until_it_fails(answering: Worker) -> None:
    first, second = (answering.ask('"who"', 60) for _ in range(2))
    assert first == second
    assert first["argument"] == "word"
    with pytest.raises(EndedError, match=r"^ended with SIGABRT: asked die$"):
        answering.ask('"die"', 60)
    third = answering.ask('"who"', 60)
    assert third["pid"] != first["pid"]
    with pytest.raises(LateError, match=r"^no result after 0\.5 s$"):
        answering.ask('"wait"', 0.5)
    with pytest.raises(EndedError, match=r"^ended with SIGKILL: no JSON$"):
        answering.ask('"babble"', 60)
    assert answering.ask('"who"', 60)["pid"] not in (first["pid"], third["pid"])


def test_a_worker_is_stopped_while_it_is_asked(answering: Worker) -> None:
    answering.ask('"who"', 60)
    timer = threading.Timer(0.5, answering.stop)
    timer.start()
    with pytest.raises(EndedError, match=r"^ended with SIGKILL"):
        answering.ask('"wait"', 60)
    timer.join()


def test_what_must_not_be_set_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    found = with_own({"TRITON_INTERPRET": None, "JAX_PLATFORMS": "cpu"})
    assert "TRITON_INTERPRET" not in found
    assert found["JAX_PLATFORMS"] == "cpu"
    assert found["PATH"] == os.environ["PATH"]


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
    name = f"{tmp_path.name}.a.jax_xla"
    run = [sys.executable, "-c", f"import {name}; print({name}.DTYPE)"]
    stale = subprocess.run(run, cwd=tmp_path.parent, capture_output=True, text=True, check=True)
    assert stale.stdout == "int8\n"  # that is what Python does
    (report,) = verify(tmp_path)
    assert (report.verdict, report.detail) == (
        "failed",
        "TypeError: data type 'int9' not understood",
    )


def test_verifying_leaves_nothing_in_the_folder(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    mesh = sw.Mesh({"x": 2})
    reshard = sw.Reshard((4, 2), "int8", mesh.sharding('[{"x"}, {}]'), mesh.sharding("[{}, {}]"))
    sw.emit(reshard, ("jax_xla",)).write(tmp_path / "a")
    before = sorted(tmp_path.rglob("*"))
    (report,) = verify(tmp_path)
    assert report.verdict == "ok"
    assert sorted(tmp_path.rglob("*")) == before
