"""What the worker processes have in common: how they start, what they print, how they ended."""

from __future__ import annotations

import io
import os
import signal
import sys
from pathlib import Path

import shardwright

# Submodules come from the folders of the package itself, so its parent need not stay on the path.
_START = """\
import runpy, sys
sys.path.insert(0, {home!r})
import shardwright
del sys.path[0]
runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
"""


def command(module: str, *words: str) -> list[str]:
    """The command that runs a module of this very package with words as its arguments.

    In a clone, `python -m` would take the folder `shardwright` at hand for the package, and with
    -P alone an installed package in the place of the one that asks.
    """
    home = str(Path(shardwright.__file__).parent.parent)
    return [sys.executable, "-P", "-c", _START.format(home=home, module=module), *words]


def ending(code: int) -> str:
    """How a process ended, by its return code: `SIGKILL`, `exit code 1`."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def only_sources() -> None:
    """From now on import modules from their sources, and leave no bytecode beside them.

    Python takes bytecode for that of a source of the same size and second: a module that was
    emitted, run and edited at once would be checked as it was before.
    """
    sys.dont_write_bytecode = True
    sys.pycache_prefix = os.devnull  # where there can be none


def own_stdout(log: Path) -> io.TextIOWrapper:
    """Keep stdout for answers; let everything that prints, at file level too, print to `log`."""
    answers = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    target = os.open(log, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    for descriptor in (1, 2):
        os.dup2(target, descriptor)
    return answers
