"""Start, time, kill and replace worker processes, and describe how they ended.

A worker runs a module of this package that uses `serve.py`. A question is one line, and its answer
is one line of JSON. The first answer announces that the worker is ready.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import shardwright

START_LIMIT = 240.0
"""The time limit in seconds for a worker to start: to import its runtime, and to find the faults
planted in it."""

Environment = Mapping[str, str | None]
"""Environment variables to set before a runtime is imported; None for a variable that must not be
set."""

# Submodules are found in the package's own folders, so the parent folder need not be on the path.
_START = """\
import runpy, sys
sys.path.insert(0, {home!r})
import shardwright
del sys.path[0]
runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
"""

# Text that a compiler written in C++ prints before the stack trace if one of its own checks fails.
_FATAL = re.compile(r"^F\d{4} [\d:.]+ +\d+ \S+\] (.*?) *$", re.MULTILINE)


class EndedError(Exception):
    """Raised if a worker ends without an answer; the message states how it ended, such as `ended
    with SIGABRT: last words`."""


class LateError(Exception):
    """Raised if a worker does not answer in time; the message states the limit."""


class Worker:
    """A process that runs a module of this package, started by the first question.

    A worker that ends or is late is replaced by a new process at the next question. `stop` may be
    called from another thread; a pending question then raises EndedError.
    """

    def __init__(self, module: str, *words: str, environment: Environment) -> None:
        self._command, self._environment = command(module, *words), with_own(environment)
        self._process: _Process | None = None

    def ask(self, question: str, limit: float) -> dict[str, Any]:
        """Return the answer to a line. Raises EndedError if the process ends without an answer, and
        LateError after `limit` seconds."""
        try:
            if self._process is None:
                self._process = _Process(self._command, self._environment)
                self._process.answer(START_LIMIT)
            process = self._process
            process.write(question)
            return process.answer(limit)
        except (EndedError, LateError):
            self.stop()
            raise

    def stop(self) -> None:
        """End the process, even in the middle of a question; the next question starts a new
        process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()


class _Process:
    def __init__(self, words: list[str], environment: dict[str, str]) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - `kill` closes it
        self._closing = threading.Lock()
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
            encoding="utf-8",
            bufsize=1,
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def write(self, question: str) -> None:
        """Send a question. If the process has ended, do nothing: the missing answer reveals it."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(question + "\n")

    def answer(self, limit: float) -> dict[str, Any]:
        """Return the next answer. Raises EndedError if the process ends without one, and LateError
        after `limit` seconds."""
        try:
            line = self._lines.get(timeout=limit)
        except queue.Empty:
            raise LateError(f"no result after {limit:g} s") from None
        if not line.startswith("{"):
            raise EndedError(self._end(line))
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _end(self, line: str) -> str:
        if line:  # it still runs, but does not follow the protocol
            self._process.kill()
        code = self._process.wait()
        with self._closing:
            log = b"" if self._log.closed or self._log.seek(0) else self._log.read()
        return epitaph(code, log.decode("utf-8", errors="replace") + line)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for file in (self._process.stdin, self._process.stdout, self._log):
            assert file is not None
            # Closing fails if the process has not read a question.
            with self._closing, contextlib.suppress(BrokenPipeError):
                file.close()


def epitaph(code: int, log: str) -> str:
    """Describe how a process ended, from its return code, and why: the failed check of a
    compiler, or the last line that the process printed."""
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return ": ".join([f"ended with {how}", *(_FATAL.findall(log) or lines)[-1:]])


def command(module: str, *words: str) -> list[str]:
    """Return the command that runs a module of this package, with `words` as its arguments.

    In a clone, `python -m` would import the local folder `shardwright` as the package. With -P
    alone, Python would import the installed package instead of the one that the caller uses.
    """
    home = str(Path(shardwright.__file__).parent.parent)
    return [sys.executable, "-P", "-c", _START.format(home=home, module=module), *words]


def with_own(environment: Environment) -> dict[str, str]:
    """Return this process's environment, updated with `environment`."""
    merged: dict[str, str | None] = {**os.environ, **environment}
    return {key: value for key, value in merged.items() if value is not None}
