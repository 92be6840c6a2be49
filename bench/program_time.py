"""The time of programs on 8 host devices: modules in the mode `cheapest`, and `jax.jit`.

The programs are training steps sharded in eight ways (`tests/models.py`), with a smaller batch than
in that file. Both sides are compiled for CPU devices and take turns in one process, on the same
arrays. The measure is the CPU time of all threads, which other work on the machine affects less;
each number is the median of TURNS turns. `python -m bench program_time` runs all programs; `main`
runs some by name.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import geometric_mean, median
from time import process_time
from typing import Any

TESTS = Path(__file__).resolve().parent.parent / "tests"
LINE = "import sys; from bench.program_time import measured; measured(sys.argv[1])"
MODELS = ("mlp_step", "layer_step")
BATCH = 16
TURNS = 7


def measured(name: str) -> None:
    """Print the CPU seconds of our module and of jit's program, given a name such as
    `layer_step:tp`."""
    import jax
    import models

    import shardwright as sw

    models.B = BATCH
    model, _, strategy = name.partition(":")
    fn, avals, inputs, outputs, mesh = models.case(model, strategy)
    sides = {"in_shardings": inputs, "out_shardings": outputs}
    program = sw.partition(fn, *avals, mesh=mesh, mode="cheapest", **sides)
    names: dict[str, Any] = {"__name__": "emitted"}
    exec(sw.emit(program).files("emitted")["jax_spmd.py"], names)
    zeros = jax.tree.map(lambda aval: jax.numpy.full(aval.shape, 0.01, aval.dtype), avals)
    given = jax.device_put(zeros, inputs)
    runs = [made.lower(*given).compile() for made in (names["program"](mesh), jax.jit(fn, **sides))]
    for run in runs:
        jax.block_until_ready(run(*given))
    times: list[list[float]] = [[], []]
    for _ in range(TURNS):
        for run, own in zip(runs, times, strict=True):
            start = process_time()
            jax.block_until_ready(run(*given))
            own.append(process_time() - start)
    print(json.dumps([median(own) for own in times]))


def row(name: str) -> list[float]:
    """Return the seconds of both sides, from a process with eight devices."""
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(TESTS), str(TESTS.parent))),
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
    }
    command = [sys.executable, "-c", LINE, name]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=env)
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def names() -> list[str]:
    """Return the names of all programs."""
    sys.path.insert(0, str(TESTS))
    import models

    return [f"{model}:{strategy}" for model in MODELS for strategy in models.MESHES]


def main(chosen: Sequence[str] = ()) -> None:
    """Print the table of the programs in `chosen`, or of all programs."""
    print("| program | ms | jit's ms | ratio |")
    print("|---|--:|--:|--:|")
    ratios = []
    for name in chosen or names():
        ours, theirs = row(name)
        ratios.append(ours / theirs)
        print(
            f"| {name.replace(':', ' ')} | {1e3 * ours:.0f} | {1e3 * theirs:.0f} "
            f"| {ratios[-1]:.2f} |",
            flush=True,
        )
    print(f"\nGeometric mean {geometric_mean(ratios):.3f}, worst {max(ratios):.2f}.")


if __name__ == "__main__":
    main(sys.argv[1:])
