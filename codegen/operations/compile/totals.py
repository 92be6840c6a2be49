"""A program's total bytes, next to those of XLA's and Shardy's partitioners."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec

from shardwright.codegen.partition.partitioned import Partitioned
from shardwright.codegen.spec.program import ProgramDescription
from shardwright.ir.errors import InputError

WORKER = f"{__package__}.totals_worker"
SHARDY = "shardy"
"""The target name for Shardy's passes, which need no compiler."""
TOPOLOGIES = {4: "v5e:2x2", 8: "v5e:2x4", 16: "v5e:4x4", 32: "v5e:4x8", 64: "v5e:8x8"}
"""The TPU topology for which XLA compiles, by the number of devices."""
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_LOG_DIR": "disabled",
}
"""The environment in which compilers work for any topology, on any machine."""


@dataclass(frozen=True)
class TotalRow:
    """A program's total under one partitioner. `received`: the bytes that the busiest device
    receives, or None; `why`: why they are unknown, if so."""

    name: str
    received: int | None
    why: str = ""


def totals(program: Partitioned, description: ProgramDescription) -> tuple[TotalRow, ...]:
    """Return the totals of a program, Shardwright's first. Other partitioners run in separate
    processes."""
    rows = [TotalRow(f"{program.mode}, as emitted", program.bytes_received)]
    for mode, name in (
        ("as_shardy", "as_shardy: Shardy's shardings"),
        ("cheapest", "cheapest: shardings by price"),
    ):
        if mode != program.mode:
            rows.append(_of_mode(program, mode, name))
    devices = program.mesh.size
    topology = TOPOLOGIES.get(devices) if find_spec("libtpu") is not None else None
    compiled = {"cpu": "jax.jit, CPU"}
    if topology:
        compiled[topology] = f"jax.jit, {topology} ahead of time"
    others = _others(description, devices, compiled)
    passes = _others(description, devices, {SHARDY: "Shardy's passes"})
    return (*rows, *others, *passes)


def _of_mode(program: Partitioned, mode: str, name: str) -> TotalRow:
    try:
        return TotalRow(name, replace(program, mode=mode).bytes_received)
    except InputError as error:
        return TotalRow(name, None, str(error).splitlines()[0])


def _others(
    description: ProgramDescription, devices: int, targets: Mapping[str, str]
) -> Iterator[TotalRow]:
    question = {
        "description": description.to_dict(),
        "home": os.path.abspath(description.home),
        "targets": list(targets),
    }
    flags = f"--xla_force_host_platform_device_count={devices}"
    done = subprocess.run(
        [sys.executable, "-m", WORKER],
        input=json.dumps(question),
        capture_output=True,
        text=True,
        env={**os.environ, **ENVIRONMENT, "XLA_FLAGS": flags},
    )
    lines = done.stdout.splitlines()
    found = json.loads(lines[-1]) if not done.returncode and lines else {}
    last = (done.stderr.strip().splitlines() or ["the process ended"])[-1]
    for target, name in targets.items():
        total = found.get(target, last)
        yield TotalRow(name, total) if isinstance(total, int) else TotalRow(name, None, total)
