"""Start the processes of a part together, and kill them at the part's time limit."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO

from bench.parts.attempt import MARK, Row, rows_of

LAST_LINES = 40
"""The number of last lines of a failed process's output to keep."""


@dataclass(frozen=True)
class Command:
    """A process to start. `name`: its name in the table; `words`: its arguments; `exits`: the
    expected exit status; `counts`: whether its exit counts as a row, because it prints none."""

    name: str
    words: tuple[str, ...]
    exits: int = 0
    counts: bool = False


@dataclass(frozen=True)
class Part:
    """Processes that run at the same time, their time limit in seconds, and their environment
    variables."""

    name: str
    commands: tuple[Command, ...]
    seconds: float
    env: Mapping[str, str] = field(default_factory=dict)


def run(part: Part) -> list[Row]:
    """Run the processes of a part within its time limit and return all their rows."""
    rows = []
    with contextlib.ExitStack() as logs:
        started = []
        for command in part.commands:
            log = logs.enter_context(tempfile.TemporaryFile("w+", errors="replace"))
            started.append((command, _started(command, part.env, log), log))
        end = time.monotonic() + part.seconds
        for command, process, log in started:
            code = _ended(process, end - time.monotonic())
            log.seek(0)
            rows += _rows(part, command, code, log.read().splitlines())
    return rows


def _started(command: Command, env: Mapping[str, str], log: IO[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command.words,
        stdout=log,
        stderr=subprocess.STDOUT,
        env={**os.environ, **env},
        text=True,
        start_new_session=True,
    )


def _ended(process: subprocess.Popen[str], seconds: float) -> int | None:
    try:
        return process.wait(max(seconds, 0.1))
    except subprocess.TimeoutExpired:
        # It leads its own session: kill its children too.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return None


def _rows(part: Part, command: Command, code: int | None, lines: list[str]) -> list[Row]:
    rows, unfinished = rows_of(lines)
    error = f"no end within {part.seconds:g} s" if code is None else f"exit status {code}"
    if code == command.exits:
        return rows + [{"part": part.name, "name": command.name, "ok": True}] * command.counts
    log = [line[:300] for line in lines if line and not line.startswith(MARK)][-LAST_LINES:]
    lost = unfinished or [{"part": part.name, "name": command.name}]
    return rows + [{**each, "ok": False, "error": error, "log": log} for each in lost]
