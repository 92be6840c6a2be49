"""A process with JAX on CPU devices that stays: programs run in it one after another."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from functools import cache

import pytest

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


class Session:
    """A process that runs programs, each with variables of its own."""

    def __init__(self) -> None:
        flags = f"--xla_force_host_platform_device_count={DEVICES}"
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVER],
            env=os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
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


@cache
def session() -> Session:
    """The process, until the tests end."""
    pytest.importorskip("jax")
    made = Session()
    atexit.register(made.close)
    return made
