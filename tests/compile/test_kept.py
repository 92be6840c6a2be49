"""What compilers said is asked for once, while nothing that decides it changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

from shardwright.codegen.checks.compiled.job import Job
from shardwright.codegen.checks.workers.worker import Worker
from shardwright.codegen.operations.compile import GpuCode, kept
from shardwright.codegen.operations.compile.pool import outcomes

CODE = GpuCode(0.1, 32, 0, 0, 1024, 4, 4, 4, 4, 0, 0)


class Compiler:
    """In the place of a worker: compiles all but modules that say `broken`."""

    asked: list[Job]

    def __init__(self) -> None:
        self.asked = []

    def ask(self, line: str) -> dict[str, Any]:
        job = Job.from_json(line)
        self.asked.append(job)
        if "broken" in Path(job.module).read_text():
            return {"error": "it is broken"}
        return {"kind": "GpuCode", "code": vars(CODE)}


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Compiler:
    made = Compiler()
    monkeypatch.setattr(Worker, "ask", lambda _, line, limit: made.ask(line))
    monkeypatch.setenv(kept.VARIABLE, str(tmp_path / "compiled"))
    return made


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A module of a folder that has support files."""
    for folder in ("name", "_support"):
        (tmp_path / folder).mkdir()
    module = tmp_path / "name" / "triton_gpu.py"
    module.write_text("SIZE = 4\n")
    (tmp_path / "_support" / "copies.py").write_text("COPIES = 1\n")
    return Job("module", "triton_gpu", "triton_gpu", str(module), "sm_90")


def times(compiler: Compiler, job: Job) -> int:
    """How often the compiler is asked for a job now."""
    before = len(compiler.asked)
    assert [outcome.code for outcome in outcomes([job], 60)] == [CODE]
    return len(compiler.asked) - before


def test_a_module_is_compiled_once(compiler: Compiler, job: Job) -> None:
    assert [times(compiler, job) for _ in range(3)] == [1, 0, 0]


def test_the_same_module_elsewhere_is_not_compiled_again(
    compiler: Compiler, job: Job, tmp_path: Path
) -> None:
    assert times(compiler, job) == 1
    home = tmp_path / "other"
    home.mkdir()
    for folder in ("name", "_support"):
        (tmp_path / folder).rename(home / folder)
    assert times(compiler, replace(job, module=str(home / "name" / "triton_gpu.py"))) == 0


def _text(monkeypatch: pytest.MonkeyPatch, job: Job) -> Job:
    Path(job.module).write_text("SIZE = 8\n")
    return job


def _support(monkeypatch: pytest.MonkeyPatch, job: Job) -> Job:
    (Path(job.module).parent.parent / "_support" / "copies.py").write_text("COPIES = 2\n")
    return job


def _version(monkeypatch: pytest.MonkeyPatch, job: Job) -> Job:
    kept._surroundings.cache_clear()
    monkeypatch.setattr(kept, "_version", lambda name: "9.9")
    return job


def _flags(monkeypatch: pytest.MonkeyPatch, job: Job) -> Job:
    kept._surroundings.cache_clear()
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--xla_tpu_use_another_scheduler")
    return job


CHANGES = {
    "text": _text,
    "support": _support,
    "version": _version,
    "flags": _flags,
    "target": lambda _, job: replace(job, target="sm_100"),
    "what": lambda _, job: replace(job, what="group"),
}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_whatever_changes_is_compiled_again(
    compiler: Compiler,
    job: Job,
    monkeypatch: pytest.MonkeyPatch,
    changes: Callable[[pytest.MonkeyPatch, Job], Job],
) -> None:
    assert times(compiler, job) == 1
    try:
        assert times(compiler, changes(monkeypatch, job)) == 1
    finally:
        monkeypatch.undo()
        kept._surroundings.cache_clear()


def test_what_failed_or_is_saved_is_compiled_again(compiler: Compiler, job: Job) -> None:
    saved = replace(job, files=str(Path(job.module).with_name("saved")))
    assert [times(compiler, saved) for _ in range(2)] == [1, 1]
    Path(job.module).write_text("broken\n")
    for asked in (3, 4):
        (outcome,) = outcomes([job], 60)
        assert outcome.error == "it is broken"
        assert len(compiler.asked) == asked


def test_a_damaged_file_is_compiled_again(compiler: Compiler, job: Job, tmp_path: Path) -> None:
    assert times(compiler, job) == 1
    (path,) = (tmp_path / "compiled").iterdir()
    path.write_text(path.read_text()[:20])
    assert [times(compiler, job) for _ in range(2)] == [1, 0]


def test_nothing_is_kept_unasked(
    compiler: Compiler, job: Job, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(kept.VARIABLE)
    assert [times(compiler, job) for _ in range(2)] == [1, 1]
    assert not (tmp_path / "compiled").exists()


def test_every_source_that_an_answer_depends_on_is_there() -> None:
    """A pattern that finds nothing, after a folder was renamed, would keep answers too long."""
    top = ROOT / "codegen"
    assert [pattern for pattern in kept.ASKING if not any(top.glob(pattern))] == []
