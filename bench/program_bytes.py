"""The bytes that the busiest device receives in a program: our two modes and other partitioners.

The programs are training steps in float32, sharded in eight ways, and small patterns
(`tests/models.py`, `tests/program_patterns.py`). Our bytes are those that plans report, which equal
those in the HLO (`tests/partition/test_program_bytes.py`). The other columns are `jax.jit` with the
same shardings of arguments and results, for CPU, whose partitioner emits no reduce-scatter, and
ahead of time for v5e:2x4, where float32 that XLA narrows counts as float32; and the collectives of
Shardy's own passes.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

TESTS = Path(__file__).resolve().parent.parent / "tests"
LINE = "from bench.program_bytes import measured; measured(%r)"
MODELS = ("mlp_step", "layer_step")
TPU = "v5e:2x4"
COLUMNS = ("as_shardy", "cheapest", "cpu", TPU, "shardy")


class Case(NamedTuple):
    """A program, its arguments, its JAX mesh, and its shardings for `jax.jit`."""

    name: str
    fn: Any
    avals: Any
    mesh: Any
    inputs: Any
    outputs: Any


Cases = Iterator[tuple[str, Callable[[], Case]]]


def measured(column: str, made: Callable[[str], Cases] | None = None) -> None:
    """Print a line of JSON for each program: its name, and the MiB in one column, or null. `made`:
    a function that returns the programs for a column, by default `cases`."""
    for name, make in (made or cases)(column):
        try:
            found = _column(column, make())
        except Exception as error:  # a compiler may raise anything
            print(f"{name}: {type(error).__name__}: {error}"[:300], file=sys.stderr)
            found = None
        print(json.dumps([name, None if found is None else found / 2**20]), flush=True)


def _column(column: str, case: Case) -> int | None:
    import shardwright as sw
    from shardwright.codegen.operations.compile.jit_bytes import devices_of, jit_received
    from shardwright.codegen.operations.compile.shardy_bytes import shardy_received

    sides = {"in_shardings": case.inputs}
    sides |= {} if case.outputs is None else {"out_shardings": case.outputs}
    if column == "shardy":
        return shardy_received(case.fn, case.avals, dict(case.mesh.shape), **sides)
    mode = column if column in ("as_shardy", "cheapest") else "as_shardy"
    program = sw.partition(case.fn, *case.avals, mesh=case.mesh, **sides, mode=mode)
    if mode == column:
        return program.bytes_received
    return jit_received(case.fn, case.avals, program, devices_of(column, 8))


def cases(column: str) -> Cases:
    """Yield the name of every program, and a function that returns its case. Constraints inside a
    program are on the devices of the column."""
    import models
    import program_patterns

    models.jax_mesh = functools.partial(_mesh, column)

    def of_model(model: str, strategy: str) -> Callable[[], Case]:
        def made() -> Case:
            fn, avals, inputs, outputs, mesh = models.case(model, strategy)
            return Case(f"{model} {strategy}", fn, avals, mesh, inputs, outputs)

        return made

    for model in MODELS:
        for strategy in models.MESHES:
            yield f"{model} {strategy}", of_model(model, strategy)
    yield from of_patterns(column, program_patterns.patterns())


def of_patterns(column: str, patterns: Iterable[Any]) -> Cases:
    """Yield the name of every pattern, and a function that returns its case."""

    def of_pattern(each: Any) -> Case:
        mesh = _mesh(column, **each.mesh.sizes)
        outputs = each.output
        if isinstance(outputs, tuple):
            outputs = tuple(_named(each.mesh, text, mesh) for text in outputs)
        elif outputs is not None:
            outputs = _named(each.mesh, outputs, mesh)
        inputs = tuple(_named(each.mesh, text, mesh) for text in each.inputs)
        return Case(each.name, each.fn, each.avals, mesh, inputs, outputs)

    for each in patterns:
        yield each.name, functools.partial(of_pattern, each)


def _mesh(column: str, **axes: int) -> Any:
    import jax
    import numpy as np

    from shardwright.codegen.operations.compile.jit_bytes import devices_of

    devices = np.array(devices_of(column if column == TPU else "cpu", 8))
    kinds = (jax.sharding.AxisType.Auto,) * len(axes)
    return jax.sharding.Mesh(devices.reshape(tuple(axes.values())), tuple(axes), kinds)


def _named(mesh: Any, text: str, to: Any) -> Any:
    """Parse `text` as a sharding of `mesh`, and return it as a NamedSharding on the JAX mesh
    `to`."""
    import jax

    from shardwright.codegen.spec.interop import to_named_sharding

    spec = to_named_sharding(mesh.sharding(text)).spec
    return jax.sharding.NamedSharding(to, spec)


def rows(line: str = LINE) -> list[list[Any]]:
    """Return the rows of a table. Each column comes from a process with eight devices, which runs
    `line` and prints names and numbers."""
    from shardwright.codegen.operations.compile.totals import ENVIRONMENT

    env = {
        **os.environ,
        **ENVIRONMENT,
        "PYTHONPATH": os.pathsep.join((str(TESTS), str(TESTS.parent))),
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
    }
    found: dict[str, list[Any]] = {}
    for column in COLUMNS:
        command = [sys.executable, "-c", line % column]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=env)
        for name, figure in map(json.loads, done.stdout.splitlines()):
            found.setdefault(name, []).append(figure)
    return [[name, *figures] for name, figures in found.items()]


def main() -> None:
    print("| program | as_shardy | cheapest | XLA, CPU | XLA, v5e | Shardy's passes |")
    print("|---|--:|--:|--:|--:|--:|")
    for name, *figures in rows():
        shown = ("–" if figure is None else f"{figure:.3f}" for figure in figures)
        print(f"| {name} | {' | '.join(shown)} |")
