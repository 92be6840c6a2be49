"""Worker processes: started with the right environment, replaced when a job ends one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from shardwright.codegen.compile.job import Job, to_json
from shardwright.codegen.compile.report import GpuCode, Outcome, TpuCode
from shardwright.codegen.compile.targets import compilers
from shardwright.codegen.workers.process import command, ending

# What a compiler in C++ writes when a check of its own fails; after it come stack and reports.
_FATAL = re.compile(r"^F\d{4} [\d:.]+ +\d+ \S+\] (.*?) *$", re.MULTILINE)


def outcomes(jobs: Sequence[Job], time_limit: float) -> Iterator[Outcome]:
    """What came of jobs of one backend, in order, as they end.

    All run in one process. A job that kills it, or takes longer than `time_limit` seconds, has
    failed, and a new process takes the rest.
    """
    left = tuple(jobs)
    with tempfile.TemporaryDirectory(prefix="shardwright-compile-") as folder:
        while left:
            process = _started(left, Path(folder), time_limit)
            try:
                for outcome in _answers(process):
                    left = left[1:]
                    yield outcome
                if left:
                    yield Outcome(error=_epitaph(process.wait(), Path(folder), time_limit))
                    left = left[1:]
            finally:
                _end(process)


def _started(jobs: Sequence[Job], folder: Path, limit: float) -> subprocess.Popen[str]:
    log = folder / "log"
    log.unlink(missing_ok=True)
    asked = folder / "jobs.json"
    asked.write_text(to_json(jobs), encoding="utf-8")
    with asked.open("rb") as stdin, log.open("ab") as stderr:
        return subprocess.Popen(
            command(__package__ + ".worker", str(log), str(limit)),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=_environment(jobs[0].backend, folder),
            encoding="utf-8",
        )


def _environment(backend: str, folder: Path) -> dict[str, str]:
    merged: dict[str, str | None] = {**os.environ, **compilers()[backend].environment(folder)}
    return {key: value for key, value in merged.items() if value is not None}


def _answers(process: subprocess.Popen[str]) -> Iterator[Outcome]:
    assert process.stdout is not None
    for line in process.stdout:
        answer: dict[str, Any] = json.loads(line)
        fields = answer.get("code")
        if fields is None:
            yield Outcome(error=answer["error"])
        else:
            yield Outcome(TpuCode(**fields) if "lower_seconds" in fields else GpuCode(**fields))


def _epitaph(code: int, folder: Path, limit: float) -> str:
    """How a process ended that was not done, and why: the check in the compiler that failed, or
    the last thing it said."""
    text = (folder / "log").read_text(encoding="utf-8", errors="replace")
    said = [line.strip() for line in text.splitlines() if line.strip()]
    if any(line.startswith("Timeout (") for line in said):
        return f"no result after {limit:g} s"
    how = "the compiler's process ended with " + ending(code)
    return ": ".join([how, *(_FATAL.findall(text) or said)[-1:]])


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()
