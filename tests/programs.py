"""Python programs in processes of their own, with as many CPU devices as they need."""

from __future__ import annotations

import os
import subprocess
import sys


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
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors[-3000:]
    return out
