"""Bytes that a program brings to the busiest device: our two modes beside `jax.jit`.

Training steps in float32 in eight ways to shard them, and small patterns (`tests/models.py`,
`tests/program_patterns.py`). Ours are as reported, which is what their HLO for CPU says (tested);
XLA's are read from the HLO of `jax.jit` with the same shardings of arguments and results, compiled
for CPU, whose partitioner emits no reduce-scatter. What it moves in loops is not counted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent.parent / "tests"
LINE = "from bench.program_bytes import measured; measured()"
MODELS = ("mlp_step", "layer_step")


def measured() -> None:
    """Print a row for each program: its name, then MiB of both modes and of XLA."""
    for name, fn, avals, mesh, inputs, outputs in _programs():
        row: list[object] = [name]
        for mode in ("as_shardy", "cheapest"):
            program = _partitioned(fn, avals, mesh, inputs, outputs, mode)
            row.append(program.bytes_received / 2**20)
        print(json.dumps([*row, _of_xla(fn, avals, mesh, inputs, outputs)]), flush=True)


def _partitioned(fn: Any, avals: Any, mesh: Any, inputs: Any, outputs: Any, mode: str) -> Any:
    import shardwright as sw

    return sw.partition(
        fn, *avals, mesh=mesh, in_shardings=inputs, out_shardings=outputs, mode=mode
    )


def _programs() -> Iterator[tuple[str, Any, Any, Any, Any, Any]]:
    import models
    import program_patterns

    for model in MODELS:
        for strategy in models.MESHES:
            fn, avals, inputs, outputs, mesh = models.case(model, strategy)
            yield f"{model} {strategy}", fn, avals, mesh, inputs, outputs
    for each in program_patterns.patterns():
        yield each.name, each.fn, each.avals, each.mesh, each.inputs, each.output


def _of_xla(fn: Any, avals: Any, mesh: Any, inputs: Any, outputs: Any) -> float | None:
    """Return what XLA's program brings; None where loops hide it."""
    import jax

    from shardwright.codegen.planner.xla import received
    from shardwright.codegen.spec.interop import to_named_sharding
    from shardwright.ir.mesh import Mesh

    if isinstance(mesh, Mesh):
        read = mesh
        inputs = tuple(to_named_sharding(read.sharding(text)) for text in inputs)
        outputs = None if outputs is None else to_named_sharding(read.sharding(outputs))
    sides = {"in_shardings": inputs} | ({} if outputs is None else {"out_shardings": outputs})
    text = jax.jit(fn, **sides).lower(*avals).compile().as_text()
    if " while(" in text:
        return None
    return max(received(text, 8)[0]) / 2**20


def rows() -> list[list[Any]]:
    """Return the rows, from a process with eight devices."""
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(TESTS), str(TESTS.parent))),
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
    }
    command = [sys.executable, "-c", LINE]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=env)
    return [json.loads(line) for line in done.stdout.splitlines()]


def main() -> None:
    """Print the table."""
    print("| program | as_shardy | cheapest | XLA, CPU |")
    print("|---|--:|--:|--:|")
    for name, *figures in rows():
        shown = ("–" if figure is None else f"{figure:.3f}" for figure in figures)
        print(f"| {name} | {' | '.join(shown)} |")
