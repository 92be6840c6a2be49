"""Workers of `verify` that stay for the next test whose modules need the same environment."""

from __future__ import annotations

import atexit
import os
import re
from typing import Any

from shardwright.codegen.checks.workers.worker import Environment, Worker, _Process

MOST_DEVICES = 18
"""A worker of JAX has as many CPU devices at least, so that one does for most meshes."""

MOST = 3
"""How many wait at a time: one of Pallas takes 700 MB."""

Key = tuple[tuple[str, ...], tuple[tuple[str, str], ...], str]
_waiting: dict[Key, _Process] = {}


class KeptWorker(Worker):
    """A worker whose process, once it is done with what it was asked, waits for the next."""

    def __init__(self, module: str, *words: str, environment: Environment) -> None:
        super().__init__(module, *words, environment=environment)
        self._environment.pop("PYTEST_CURRENT_TEST", None)
        if "XLA_FLAGS" in self._environment:
            flags = self._environment["XLA_FLAGS"]
            self._environment["XLA_FLAGS"] = re.sub(r"(?<=device_count=)\d+", _at_least, flags)
        words_and_folder = tuple(self._command), tuple(sorted(self._environment.items()))
        self._key: Key = (*words_and_folder, os.getcwd())
        self._done = False

    def ask(self, question: str, limit: float) -> dict[str, Any]:
        """As any worker does, by a process that waits if there is one."""
        if self._process is None:
            self._process = _waiting.pop(self._key, None)
        self._done = False
        answer = super().ask(question, limit)
        self._done = not answer.get("fresh")
        return answer

    def stop(self) -> None:
        """Let the process wait, unless it is being asked or shall not be asked again."""
        if self._done and self._process is not None and self._key not in _waiting:
            _waiting[self._key], self._process = self._process, None
            if len(_waiting) > MOST:
                _waiting.pop(next(iter(_waiting))).kill()
        super().stop()


def _at_least(number: re.Match[str]) -> str:
    return str(max(int(number[0]), MOST_DEVICES))


@atexit.register
def _end() -> None:
    for process in _waiting.values():
        process.kill()
