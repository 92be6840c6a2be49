"""Processes with JAX that stay. One runs programs one after another on its CPU devices. Another has
imported all and forks: a script then starts at once and has a process of its own."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest
from places import TESTS

DEVICES = 13
"""One more than any program has: TPU interpret mode needs a thread that runs no device."""

SERVER = """
import contextlib, io, json, sys, traceback
answers = sys.stdout
for line in sys.stdin:
    program, variables = json.loads(line)
    out, error = io.StringIO(), ""
    with contextlib.redirect_stdout(out):
        try:
            exec(compile(program, "<program>", "exec"), {"__name__": "__main__", **variables})
        except Exception:
            error = traceback.format_exc()
    print(json.dumps([out.getvalue(), error]), file=answers, flush=True)
"""

IMPORTED = (
    "import emitted, models; from jax._src import xla_bridge; assert not xla_bridge._backends"
)
FORK = """
import json, os, runpy, signal, sys, traceback
child = os.fork()
if not child:
    code = 1
    signal.alarm(600)  # ends what hangs
    try:
        with open(said, "w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        sys.stdout, sys.stderr = open(1, "w"), open(2, "w")
        os.environ.clear()
        os.environ.update(json.loads(environment))
        sys.argv = [script, *json.loads(words)]
        runpy.run_path(script, run_name="__main__")
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status))
"""


class Session:
    """A process that runs programs, each with variables of its own."""

    def __init__(self) -> None:
        flags = f"--xla_force_host_platform_device_count={DEVICES}"
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVER],
            env=os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, "PYTHONPATH": str(TESTS)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, program: str, **variables: str) -> str:
        """Return what a program prints; it must succeed."""
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps([program, variables]), file=self._process.stdin, flush=True)
        out, error = json.loads(self._process.stdout.readline())
        assert not error, error
        return str(out)

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def _staying() -> Session:
    pytest.importorskip("jax")
    made = Session()
    atexit.register(made.close)
    return made


@cache
def session() -> Session:
    """The process that runs programs, until the tests end."""
    return _staying()


@cache
def _forking() -> Session:
    made = _staying()
    made.run(IMPORTED)
    return made


def printed(script: Path, *words: str) -> str:
    """What a script of the tests prints in a process of its own; it must succeed."""
    with tempfile.TemporaryDirectory() as folder:
        said = Path(folder) / "said"
        variables = {"script": str(script), "words": json.dumps(words), "said": str(said)}
        code = _forking().run(FORK, environment=json.dumps(dict(os.environ)), **variables)
        text = said.read_text()
    assert code == "0\n", text[-3000:]
    return text
