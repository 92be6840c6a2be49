"""How long propagation takes on a training step of many layers, beside Shardy's passes in jaxlib.

The model is GPT-2-like: transformer layers one after the other, unrolled, with the gradient of all
weights and a step of gradient descent, sharded as FSDP and tensor parallelism on 4 x 2 devices.
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
import jax, jax.numpy as jnp
import models, sdy_peer
import shardwright as sw

layers = int(sys.argv[1])

def stack(ps, x):
    for p in ps:
        x = models.layer(p, x)
    return x

mesh = models.jax_mesh(d=4, t=2)
one = models.layer_parameters()
placed = {
    name: jax.sharding.NamedSharding(
        mesh, models.parameter_spec(["fsdp", "tp"], name, len(p.shape)))
    for name, p in one.items()
}
data = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d"))
x = models.shaped(models.B, models.S, models.D)
step, avals = models.step_of(stack), ([one] * layers, x, x)
inputs = ([placed] * layers, data, data)
times = [time.perf_counter()]
program = sw.partition(step, *avals, mesh=mesh, in_shardings=inputs)
times.append(time.perf_counter())
count = len(program.program.values)
times.append(time.perf_counter())
module = sdy_peer.module_of(step, avals, in_shardings=inputs)
times.append(time.perf_counter())
sdy_peer.propagated(module)
times.append(time.perf_counter())
print(count, *(b - a for a, b in zip(times, times[1:])))
"""


def measured(layers: int) -> list[float]:
    """How many values there are; seconds to trace, to propagate, and the same of the peer."""
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
    """Print the table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="A GPT-2-like training step, unrolled: seconds")
    for column in ("layers", "values", "tracing", "propagation", "jax's lowering", "Shardy's"):
        table.add_column(column, justify="right")
    for layers in LAYERS:
        count, *times = measured(layers)
        table.add_row(str(layers), f"{count:.0f}", *(f"{seconds:.2f}" for seconds in times))
    Console().print(table)
