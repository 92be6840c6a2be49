"""Python programs in processes of their own, with as many CPU devices as they need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import sessions
from places import TESTS


def started(
    program: str, devices: int, *arguments: object, **variables: str
) -> subprocess.Popen[str]:
    """A Python program with so many CPU devices."""
    environment = os.environ | variables
    environment |= {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
    }
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output(process: subprocess.Popen[str]) -> str:
    """What a program printed; it must succeed."""
    out, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors[-3000:]
    return out


SELF_CHECKS = """
import importlib.util, sys

for path in sys.argv[1:]:
    spec = importlib.util.spec_from_file_location("emitted", path)
    m = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(m)
    print(m._HOST.self_check())
"""
"""Loads emitted modules by their paths and prints what each says of itself."""


def findings(script: str, *words: str) -> Any:
    """What a script of the tests finds, which is the JSON on the last line that it prints."""
    found = json.loads(sessions.printed(TESTS / script, *words).splitlines()[-1])
    assert found
    return found
