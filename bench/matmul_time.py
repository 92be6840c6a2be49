"""The time of sharded matmuls on 8 host devices: our modules and `jax.jit`.

The matmuls are random triples of shardings of two operands and their product, a third of them with
a batch dimension, planned for `cpu:8`. Both sides are compiled for CPU devices and take turns in
one process on the same arrays. The measure is the CPU time of all threads, which other work on the
machine affects less. The table has the median and the least time of each side over TURNS turns; it
is written to `matmul_time.md`. The two results are compared with each other; tests compare ours
with numpy. A matmul that seems slower by a tenth is measured again, with more turns. A second table
has plans with requested loops.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import geometric_mean, median
from time import process_time
from typing import Any

import shardwright as sw
from bench.matmuls import shardings, write_modules
from bench.peers import versions
from shardwright.codegen.moves.matmul.plan import plan_matmul
from shardwright.ir.matmul import SIDES
from shardwright.ir.matmul_plan import MatmulPlan

COUNT = 90
TURNS, MORE_TURNS = 9, 21
DOUBTFUL = 1.1
LOOPS = 12
DEVICES = 8
TOPOLOGY = "cpu:8"
RESULT = Path(__file__).parent / "matmul_time.md"
MESHES = ({"x": 2, "y": 4}, {"x": 2, "y": 2, "z": 2}, {"x": 8})
SIZES = (
    ((), (1024, 1024, 1024)),
    ((), (256, 2048, 1024)),
    ((8,), (256, 512, 512)),
    ((), (2048, 256, 1024)),
    ((), (64, 2048, 4096)),
    ((16,), (128, 128, 512)),
)
LINE = "from bench.matmul_time import serve; serve({})"
HEADINGS = ("lhs", "rhs", "result", "moves", "ms", "jit's ms", "ratio", "of the least of each")

Times = list[list[float]]
"""The seconds of each turn, of our module and then of jit's program."""


def drawn(count: int, seed: int = 0) -> Iterator[sw.Matmul]:
    """Yield random matmuls. They cycle through the meshes and the sizes."""
    rng = random.Random(seed)
    for number in range(count):
        axes = MESHES[number % len(MESHES)]
        batch, (i, j, k) = SIZES[number % len(SIZES)]
        texts = shardings(tuple(axes), 2 + len(batch))
        lhs, rhs, out = (rng.choice(texts) for _ in range(3))
        yield sw.Matmul("float32", ((*batch, i, j), lhs), ((*batch, j, k), rhs), out, mesh=axes)


def serve(turns: int) -> None:
    """Read the path of a module from each line. Print the seconds of both sides, turn by turn."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from shardwright.codegen.checks.load import load

    for line in sys.stdin:
        module = load(Path(line.strip()))
        mesh = module._LHS.mesh_of(jax.devices()[:DEVICES])
        rng = np.random.default_rng(0)
        a, b = (
            jax.device_put(rng.integers(-2, 3, shape).astype(module.DTYPE), side.on(mesh))
            for shape, side in (
                (module.LHS_SHAPE, module._LHS),
                (module.RHS_SHAPE, module._RHS),
            )
        )
        out = module.out_sharding(mesh)

        def ours(a: Any, b: Any, module: Any = module, mesh: Any = mesh) -> Any:
            return module.matmul(a, b, mesh)

        programs = [
            jax.jit(function, out_shardings=out).lower(a, b).compile()
            for function in (ours, jnp.matmul)
        ]
        first = [program(a, b) for program in programs]
        assert bool((first[0] == first[1]).all()), "they differ"
        print(json.dumps(_turns(turns, programs, a, b)), flush=True)


def _turns(turns: int, programs: list[Any], a: Any, b: Any) -> Times:
    import jax

    taken: Times = [[], []]
    for turn in range(turns):
        for number in (0, 1) if turn % 2 else (1, 0):
            start = process_time()
            jax.block_until_ready(programs[number](a, b))
            taken[number].append(process_time() - start)
    return taken


def measured(plans: Iterable[MatmulPlan], turns: int = TURNS) -> list[Times]:
    """Return the seconds of both sides for each plan, over `turns` turns."""
    with tempfile.TemporaryDirectory() as folder:
        paths = write_modules(plans, Path(folder) / "generated")
        ran = subprocess.run(
            [sys.executable, "-c", LINE.format(turns)],
            input="\n".join(map(str, paths)),
            env={
                **os.environ,
                "JAX_PLATFORMS": "cpu",
                "XLA_FLAGS": f"--xla_force_host_platform_device_count={DEVICES}",
            },
            capture_output=True,
            text=True,
            check=False,
        )
    if ran.returncode:
        raise RuntimeError(ran.stderr[-2000:])
    return [json.loads(line) for line in ran.stdout.splitlines()]


def again(plans: list[MatmulPlan], found: list[Times]) -> list[Times]:
    """Return the times after measuring doubtful matmuls again."""
    doubtful = [n for n, times in enumerate(found) if max(ratios(times)) > DOUBTFUL]
    more = measured([plans[number] for number in doubtful], MORE_TURNS)
    better = dict(zip(doubtful, more, strict=True))
    return [better.get(number, times) for number, times in enumerate(found)]


def ratios(times: Times) -> tuple[float, float]:
    """Return the ratios of our time to jit's, of the medians and of the minima."""
    ours, theirs = times
    return median(ours) / median(theirs), min(ours) / min(theirs)


def table(plans: list[MatmulPlan], found: list[Times]) -> list[str]:
    """Return the lines of a table, worst ratio first, below a summary."""
    rows = []
    for plan, times in zip(plans, found, strict=True):
        of_medians, of_least = ratios(times)
        ms = [f"{1e3 * median(each):.1f}" for each in times]
        cells = (*_words(plan), *ms, f"{of_medians:.2f}", f"{of_least:.2f}")
        rows.append((of_least, f"| {' | '.join(cells)} |"))
    both = list(zip(*map(ratios, found), strict=True))
    return [
        *(
            f"{what}, {len(each)} matmuls: geometric mean {geometric_mean(each):.2f}, worst "
            f"{max(each):.2f}, {sum(ratio > 1.15 for ratio in each)} above 1.15.\n"
            for what, each in zip(("Of medians", "Of the least of each"), both, strict=True)
        ),
        f"| {' | '.join(HEADINGS)} |",
        "| --- " * len(HEADINGS) + "|",
        *(row for _, row in sorted(rows, reverse=True)),
    ]


def _words(plan: MatmulPlan) -> tuple[str, ...]:
    matmul, chosen = plan.matmul, plan.chosen
    sides = (f"{'x'.join(map(str, matmul.shape(side)))} {matmul.sharding(side)}" for side in SIDES)
    moves = (f"{side}: {move.ops}" for side, move in zip(SIDES, chosen.moves, strict=True)
             if move.ops)  # fmt: skip
    return (*sides, "; ".join(moves) or "nothing")


def looped(count: int) -> Iterator[MatmulPlan]:
    """Yield plans with a requested loop, alternately in one direction and in both."""
    for number, matmul in enumerate(drawn(8 * count, seed=1)):
        try:
            yield plan_matmul(matmul, TOPOLOGY, loop=("one", "both")[number % 2], listed=0)
        except sw.InputError:  # here no operand moves around a ring
            continue


def main(count: int = COUNT) -> None:
    """Write and print the tables. `count`: the number of random matmuls."""
    plans = [plan_matmul(matmul, TOPOLOGY, listed=0) for matmul in drawn(count)]
    loops = list(itertools.islice(looped(LOOPS), LOOPS))
    lines = [
        "# Processor time of sharded matmuls beside `jax.jit`",
        "",
        f"`python -m bench matmul_time:{count}`. {versions()} {DEVICES} host devices, float32, "
        f"{TURNS} turns of each side, {MORE_TURNS} where ours seemed slower by a tenth.",
        "",
        f"## What is planned for `{TOPOLOGY}`",
        "",
        *table(plans, again(plans, measured(plans))),
        "",
        "## Loops that are asked for",
        "",
        *table(loops, measured(loops)),
        "",
    ]
    text = "\n".join(lines)
    RESULT.write_text(text)
    print(text)
