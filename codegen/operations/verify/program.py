"""Verify the module of a program: compare its values with those on one device, and the bytes that
it states with those in its HLO."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

from shardwright.codegen.checks.report import Report, Verdict
from shardwright.codegen.registry import PROGRAM_FILE, PROGRAMS
from shardwright.codegen.spec.program import ProgramDescription
from shardwright.ir.mesh import Mesh

AS_WRITTEN = "--xla_disable_hlo_passes=cse"
"""The flag that stops XLA from merging repeated computations, so that bytes are counted as
written."""
WORKER = f"{__package__}.program_worker"


def report_program(
    description: ProgramDescription, folder: Path, home: Path, time_limit: float
) -> Report:
    """Return the verdict on the module in a folder. `home`: the folder of the user's module."""
    devices, start = Mesh.parse(description.mesh).size, time.monotonic()

    def report(verdict: Verdict, detail: str, checks: tuple[str, ...] = ()) -> Report:
        seconds = time.monotonic() - start
        return Report(description.name, PROGRAMS, devices, verdict, detail, seconds, checks)

    if find_spec("jax") is None:
        return report("skipped", "jax is not installed: pip install 'shardwright[jax]'")
    question = {
        "description": description.to_dict(),
        "home": str(home.absolute()),
        "module": str((folder / PROGRAM_FILE).absolute()),
    }
    # Interpreted kernels may deadlock without a spare thread; each extra device adds one.
    forced = devices + bool(description.kernels)
    flags = f"--xla_force_host_platform_device_count={forced} {AS_WRITTEN}"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", WORKER],
            input=json.dumps(question),
            capture_output=True,
            text=True,
            env=environment,
            timeout=time_limit,
        )
    except subprocess.TimeoutExpired:
        return report("failed", f"it did not finish within {time_limit:.0f} seconds")
    if done.returncode:
        return report(
            "failed", (done.stderr.strip().splitlines() or ["it ended without a message"])[-1]
        )
    answer = json.loads(done.stdout.splitlines()[-1])
    verdict: Verdict = "failed" if answer["detail"] else "ok"
    return report(verdict, answer["detail"], tuple(answer["checks"]))
