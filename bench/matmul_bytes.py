"""Bytes that a sharded matmul brings to the busiest device: our modules beside `jax.jit`.

Random triples of shardings of two matrices and their product, evenly split, in float32, three
ratios of sizes. Both sides are compiled for CPU devices and read by their HLO, so that what counts
is what each program truly moves (an all-reduce twice, as on a ring). XLA's partitioner on CPU emits
no reduce-scatter; what it makes for TPU is not in this table.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import shardwright as sw
from shardwright.codegen.emit.support import support_files
from shardwright.codegen.planner.matmul.plan import plan_matmul
from shardwright.codegen.planner.xla import received

COUNT = 60
"""Matmuls of each mesh."""

MESHES = ({"x": 2, "y": 4}, {"x": 2, "y": 2, "z": 2})
SIZES = ((64, 256, 512), (512, 256, 64), (128, 1024, 128))
LINE = "from bench.matmul_bytes import compiled; compiled()"


@dataclass(frozen=True)
class Moved:
    """Bytes into the busiest device: what we planned, what our module and what jit's program do."""

    planned: int
    ours: int
    jit: int


def shardings(axes: tuple[str, ...]) -> list[str]:
    """Return all shardings of a matrix over axes, each at a dimension, in every order, or at
    none."""
    found = set()
    for count in range(len(axes) + 1):
        for chosen in itertools.permutations(axes, count):
            for cut in range(count + 1):
                parts = (chosen[:cut], chosen[cut:])
                dims = ("{" + ", ".join(f'"{axis}"' for axis in part) + "}" for part in parts)
                found.add(f"[{', '.join(dims)}]")
    return sorted(found)


def drawn(axes: dict[str, int], count: int, seed: int = 0) -> Iterator[sw.Matmul]:
    """Yield random matmuls on a mesh."""
    rng, texts = random.Random(seed), shardings(tuple(axes))
    for number in range(count):
        i, j, k = SIZES[number % len(SIZES)]
        lhs, rhs, out = (rng.choice(texts) for _ in range(3))
        yield sw.Matmul("float32", ((i, j), lhs), ((j, k), rhs), out, mesh=axes)


def compiled() -> None:
    """Read the path of a module a line; print bytes of its program, and of jit's."""
    import jax
    import jax.numpy as jnp

    from shardwright.codegen.verify.load import load

    for line in sys.stdin:
        module = load(Path(line.strip()))
        mesh = module._LHS.mesh_of(jax.devices()[: len(module.IDS)])
        sides = zip((module.LHS_SHAPE, module.RHS_SHAPE), (module._LHS, module._RHS), strict=True)
        given = [jax.ShapeDtypeStruct(s, "float32", sharding=side.on(mesh)) for s, side in sides]
        out = module.out_sharding(mesh)

        def ours(a: jax.Array, b: jax.Array, module=module, mesh=mesh) -> jax.Array:  # type: ignore[no-untyped-def]
            return module.matmul(a, b, mesh)

        figures = []
        for function in (ours, jnp.matmul):
            text = jax.jit(function, out_shardings=out).lower(*given).compile().as_text()
            figures.append(max(received(text, len(module.IDS))[0]))
        print(json.dumps(figures), flush=True)


def measured(matmuls: list[sw.Matmul], root: Path) -> list[Moved]:
    """Return what each matmul moves."""
    (root / "_support").mkdir(parents=True)
    for file, text in support_files(["jax_xla"]).items():
        (root / "_support" / file).write_text(text)
    plans = [plan_matmul(matmul, listed=0) for matmul in matmuls]
    paths = []
    for number, plan in enumerate(plans):
        path = root / f"m{number}" / "jax_xla.py"
        path.parent.mkdir()
        path.write_text(sw.emit(plan).modules("as measured")["jax_xla.py"])
        paths.append(str(path))
    flags = "--xla_force_host_platform_device_count=8"
    ran = subprocess.run(
        [sys.executable, "-c", LINE],
        input="\n".join(paths),
        env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        raise RuntimeError(ran.stderr[-2000:])
    figures = map(json.loads, ran.stdout.splitlines())
    return [
        Moved(plan.chosen.cost.received_max, *each)
        for plan, each in zip(plans, figures, strict=True)
    ]


def row(axes: dict[str, int], found: list[Moved]) -> tuple[str, ...]:
    """Return the cells of a mesh."""
    both = [each for each in found if each.ours and each.jit]
    ratios = np.array([each.ours / each.jit for each in both] or [1.0])
    less = sum(each.ours < each.jit for each in found)
    more = sum(each.ours > each.jit for each in found)
    beyond = sum(each.ours > each.planned for each in found)
    return (
        "x".join(map(str, axes.values())),
        str(len(found)),
        f"{np.exp(np.log(ratios).mean()):.3f}",
        f"{ratios.max():.3f}",
        f"{less} / {len(found) - less - more} / {more}",
        str(beyond),
    )


def main(count: int = COUNT) -> None:
    """Print the table; `count` matmuls of each mesh."""
    table = Table(title="bytes into the busiest device, ours over jit's, HLO for CPU")
    headings = ("mesh", "matmuls", "geometric mean", "worst", "less / equal / more", "beyond plan")
    for heading in headings:
        table.add_column(heading, justify="right")
    for axes in MESHES:
        with tempfile.TemporaryDirectory() as folder:
            found = measured(list(drawn(axes, count)), Path(folder) / "generated")
        table.add_row(*row(axes, found))
    Console().print(table)
