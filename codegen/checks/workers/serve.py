"""Run the main loop of a worker process: answer each line of standard input with a line of JSON,
until input ends."""

from __future__ import annotations

import io
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping

Answer = Callable[[str], Mapping[str, object]]
"""Returns the answer to a line. The answer must be representable in JSON."""


def serve(prepare: Callable[[], Answer]) -> None:
    """Call `prepare` and announce that it returned; then answer each line of standard input with
    the function that it returned.

    The process ends when standard input ends, or when the process that started it ends.
    """
    answers = own_stdout()
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    answer = prepare()
    only_sources()
    answers.write(json.dumps({"ready": True}) + "\n")
    for line in sys.stdin:
        answers.write(json.dumps(answer(line)) + "\n")


def own_stdout() -> io.TextIOWrapper:
    """Return the standard output, reserved for answers; redirect all other output, including
    that of C code, to standard error."""
    answers = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)
    return answers


def only_sources() -> None:
    """Import modules from their sources from now on, and write no bytecode.

    Python considers bytecode current if the source has the same size and the same modification time
    in whole seconds. So a module that was emitted, run and then edited within a second would be
    checked in its old state.
    """
    sys.dont_write_bytecode = True
    sys.pycache_prefix = os.devnull  # no folder, so no old bytecode is found


def _end_with(parent: int) -> None:
    """Watch the parent process, and end this process when the parent has ended, even if a kernel
    hangs."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)
