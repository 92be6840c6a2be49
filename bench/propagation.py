"""The time of propagation and emission for a training step of many layers, compared with Shardy's
passes.

The model is GPT-2-like (`tests/gpt2.py`): embeddings, unrolled transformer layers, a tied head and
cross entropy, with a step of Adam, sharded as FSDP and tensor parallelism on 4 x 2 devices. A test
with fewer layers checks that every sharding equals the one that Shardy's passes give.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

LAYERS = (4, 32)
TESTS = Path(__file__).resolve().parent.parent / "tests"
PROGRAM = """
import sys, time
import gpt2, sdy_peer
import shardwright as sw

step, avals, inputs, outputs, mesh = gpt2.case("fsdp+tp", int(sys.argv[1]))
shardings = {"in_shardings": inputs, "out_shardings": outputs}
times = [time.perf_counter()]
program = sw.partition(step, *avals, mesh=mesh, **shardings)
times.append(time.perf_counter())
count = len(program.program.values)
times.append(time.perf_counter())
module = sdy_peer.module_of(step, avals, **shardings)
times.append(time.perf_counter())
sdy_peer.propagated(module)
times.append(time.perf_counter())
program = sw.partition(step, *avals, mesh=mesh, mode="cheapest", **shardings)
sw.emit(program).files("step")
times.append(time.perf_counter())
print(count, *(b - a for a, b in zip(times, times[1:])))
"""


def measured(layers: int) -> list[float]:
    """Return the number of values, and the seconds to trace, to propagate, to lower in JAX, to
    propagate with Shardy, and to emit."""
    env = {
        **os.environ,
        "PYTHONPATH": str(TESTS),
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
    }
    command = [sys.executable, "-c", PROGRAM, str(layers)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
    return [float(word) for word in done.stdout.splitlines()[-1].split()]


def main() -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="A GPT-2-like training step, unrolled: seconds")
    columns = ("layers", "values", "tracing", "propagation", "jax's lowering", "Shardy's", "module")
    for column in columns:
        table.add_column(column, justify="right")
    for layers in LAYERS:
        count, *times = measured(layers)
        table.add_row(str(layers), f"{count:.0f}", *(f"{seconds:.2f}" for seconds in times))
    Console().print(table)
