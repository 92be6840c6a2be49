"""The time of `jax_xla.py` and of XLA's own reshard on 8 host devices, and the bytes of both.

XLA's own reshard is `jax.jit` of the identity with `out_shardings`. Our program and XLA's take
turns in one process, on the same arrays. XLA's runs a second time in each turn: the ratio of two
equal programs shows the machine's noise. There are PASSES passes over all reshards, so that a
temporary disturbance affects only one pass of a reshard. A pass has as many turns as fit into
SECONDS, from LEAST_TURNS to MOST_TURNS. Each number is the median of all turns. Tensors have 16 to
64 MB. Bytes are those that the busiest device receives, read from the compiled programs.

For reshards of rank 3 the measure is the CPU time of all threads, which other work on the machine
affects less. Each number is the median of PROCESSOR_TURNS turns in each of PASSES processes, next
to the least of all turns: the addresses of arrays affect a whole process. That table is written to
`xla_time.md`.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import geometric_mean, median
from time import process_time
from typing import Any

from rich.console import Console
from rich.table import Table

import shardwright as sw
from bench import reshards
from bench.chart import Chart, Series, written
from bench.peers import versions
from shardwright.codegen.backends.jax_xla import context as jax_xla
from shardwright.codegen.checks.workers.clock import timed
from shardwright.codegen.operations.emit.modules import parts
from shardwright.codegen.spec.description import Description, describe
from shardwright.ir import AxisRef, DimSharding, Sharding
from shardwright.ir.dtypes import DTYPES

DEVICES = 8
PASSES = 3
LEAST_TURNS, MOST_TURNS, SECONDS = 7, 31, 1.5
PAIRS = 75
MATRICES = (
    ({"x": 2, "y": 4}, (4096, 1024)),
    ({"x": 2, "y": 2, "z": 2}, (4096, 2048)),
    ({"x": 4, "y": 2}, (4096, 4096)),
)
SIZES = range(1 << 24, (1 << 26) + 1)
DEEP = 60  # random reshards of rank 3
DEEP_SIZES = (1 << 23, 1 << 27)
PROCESSOR_TURNS = 7
RESULT = Path(__file__).parent / "xla_time.md"


def cases(pairs: int) -> Iterator[tuple[str, sw.Reshard]]:
    """Yield reshards with their names: random pairs of shardings of matrices of 16, 32 and 64 MB,
    with a fixed seed; and the corpus's reshards of such sizes on one mesh of at most 8 devices, if
    their dimensions divide evenly."""
    rng = random.Random(0)
    for axes, shape in MATRICES:
        listed = list(itertools.permutations(_shardings(sw.Mesh(axes)), 2))
        for source, target in rng.sample(listed, pairs // len(MATRICES)):
            yield f"{source} -> {target}", sw.Reshard(shape, "float32", source, target)
    for name, reshard in reshards.corpus().items():
        if _fits(reshard):
            yield name, reshard


def deep_cases(count: int) -> Iterator[tuple[str, sw.Reshard]]:
    """Yield random reshards of rank 3, of 8 to 128 MB on 8 devices, some with axes cut into
    sub-axes or unused. The extents of every other reshard do not divide evenly."""
    rng = random.Random(1)
    for number in range(count):
        mesh = sw.Mesh(rng.choice([{"x": 2, "y": 4}, {"x": 2, "y": 2, "z": 2}, {"x": 8}]))
        elements = math.exp(rng.uniform(*map(math.log, DEEP_SIZES))) / 4
        ratios = [rng.uniform(0.5, 2.0) for _ in range(3)]
        scale = (elements / math.prod(ratios)) ** (1 / 3)
        extents = [max(8, round(scale * ratio)) for ratio in ratios]
        shape = tuple(e - e % 8 if number % 2 == 0 else e - e % 8 + 3 for e in extents)
        sides = (reshards.random_sharding(rng, mesh, 3) for _ in range(2))
        made = sw.Reshard(shape, "float32", *sides)
        yield f"{'x'.join(map(str, shape))} {made.source} -> {made.target}", made


def _shardings(mesh: sw.Mesh) -> list[Sharding]:
    found = []
    for count in range(len(mesh.names) + 1):
        for names in itertools.permutations(mesh.names, count):
            for cut in range(count + 1):
                parts = (names[:cut], names[cut:])
                dims = (DimSharding(tuple(map(AxisRef, part))) for part in parts)
                found.append(Sharding(mesh, tuple(dims)))
    return found


def _fits(reshard: sw.Reshard) -> bool:
    meshes = (reshard.source.mesh, reshard.target.mesh)
    if any(mesh.device_ids != range(mesh.size) or mesh.size > DEVICES for mesh in meshes):
        return False
    even = all(
        extent % side.parts(dim) == 0
        for side in (reshard.source, reshard.target)
        for dim, extent in enumerate(reshard.shape)
    )
    size = math.prod(reshard.shape) * DTYPES[reshard.dtype]
    return even and meshes[0] == meshes[1] and size in SIZES


@dataclass
class Case:
    """One reshard. `programs`: our program, XLA's, and XLA's again; `times`: the milliseconds of
    each; `how`: the transport of our module."""

    module: Any
    mesh: Any
    how: str
    programs: list[Any] = field(default_factory=list)
    times: list[list[float]] = field(default_factory=lambda: [[], [], []])

    def run(self) -> None:
        """Time the programs in turns on one array, for one pass. The first pass compiles them and
        compares their results."""
        import jax
        import jax.numpy as jnp

        module = self.module
        numbers = jnp.arange(math.prod(module.SHAPE)) % 2
        shaped = numbers.astype(module.DTYPE).reshape(module.SHAPE)
        x = jax.device_put(module.pad(shaped), module.source_sharding(self.mesh))
        if not self.programs:
            target, theirs = module.target_sharding(self.mesh), functools.partial(_padded, module)
            self.programs = [
                jax.jit(function, out_shardings=target).lower(x).compile()
                for function in (lambda x: module.reshard(x, self.mesh), theirs, theirs)
            ]
            ours, theirs = (program(x) for program in self.programs[:2])
            assert bool((ours == theirs).all()), "they differ"
        calls = [lambda p=p: jax.block_until_ready(p(x)) for p in self.programs]
        for taken, more in zip(self.times, _times(calls), strict=True):
            taken += more

    def processor_times(self, turns: int) -> list[list[float]]:
        """Return the CPU seconds of our program and of XLA's, turn by turn, after one untimed run
        of each."""
        import jax
        import jax.numpy as jnp

        module = self.module
        taken: list[list[float]] = [[], []]
        shaped = (jnp.arange(math.prod(module.SHAPE)) % 2).astype(module.DTYPE)
        x = module.pad(shaped.reshape(module.SHAPE))
        x = jax.device_put(x, module.source_sharding(self.mesh))
        target, theirs = module.target_sharding(self.mesh), functools.partial(_padded, module)
        programs = [
            jax.jit(function, out_shardings=target).lower(x).compile()
            for function in (lambda x: module.reshard(x, self.mesh), theirs)
        ]
        first = [program(x) for program in programs]
        assert bool((first[0] == first[1]).all()), "they differ"
        for turn in range(turns):
            for number in (0, 1) if turn % 2 else (1, 0):
                start = process_time()
                jax.block_until_ready(programs[number](x))
                taken[number].append(process_time() - start)
        return taken

    def figures(self) -> dict[str, Any]:
        """Return the median milliseconds of all programs, the bytes that the busiest device
        receives in ours and in XLA's, and the transport."""
        from shardwright.codegen.moves.xla import received

        texts = [program.as_text() for program in self.programs[:2]]
        nbytes = [max(received(text, self.mesh.size)[0]) for text in texts]
        return {"ms": [median(taken) for taken in self.times], "bytes": nbytes, "how": self.how}


def _padded(module: Any, x: Any) -> Any:
    """Replace the padding of the source in `x` by the padding of the target."""
    import jax.numpy as jnp

    shape, padded = module.SHAPE, module.PADDED_TARGET_SHAPE
    if padded == x.shape:
        return x
    x = x[tuple(slice(size) for size in shape)]
    return jnp.pad(x, [(0, to - size) for size, to in zip(shape, padded, strict=True)])


def _times(calls: list[Callable[[], Any]]) -> list[list[float]]:
    """Return the milliseconds of each call, turn by turn, in a different order in each turn."""
    found = timed(calls, least=LEAST_TURNS, most=MOST_TURNS, limit=SECONDS)
    return [[1e3 * seconds for seconds in taken] for taken in found]


def serve() -> None:
    """Measure the reshards described on standard input. Print one JSON object per line."""
    import jax

    jax.config.update("jax_enable_x64", True)
    listed = [_case(json.loads(line)) for line in sys.stdin]
    for _ in range(PASSES):
        for case in listed:
            case.run()
    for case in listed:
        print(json.dumps(case.figures()), flush=True)


def serve_processor_times() -> None:
    """Measure CPU time as `serve` measures milliseconds, but with all turns of a reshard at
    once."""
    import jax

    jax.config.update("jax_enable_x64", True)
    for line in sys.stdin:
        case = _case(json.loads(line))
        times = case.processor_times(PROCESSOR_TURNS)
        print(json.dumps({"seconds": times, "how": case.how}), flush=True)


def _case(description: dict[str, Any]) -> Case:
    import jax
    import numpy as np

    from shardwright.codegen.checks.load import load

    plan = sw.plan(describe(description).reshard(), "direct")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "jax_xla.py")
        path.write_text(parts(plan, "jax_xla", "shardwright emit", single_file=True)[0].text)
        module = load(path)
    names, sizes = zip(*module.SOURCE_AXES, strict=True)
    devices = np.array(jax.devices()[: plan.devices]).reshape(sizes)
    how = type(jax_xla.how_of(plan)).__name__.lower()
    return Case(module, jax.sharding.Mesh(devices, names), how)


def main(pairs: int = PAIRS) -> None:
    """Print two tables: matrices and the corpus, and tensors of rank 3."""
    found = _measured("matrices and the corpus", list(cases(pairs)))
    written("cpu_time", _picture(found))
    deep(min(DEEP, pairs))


def deep(count: int = DEEP) -> None:
    listed = list(deep_cases(count))
    passes = [_asked(listed, serve_processor_times) for _ in range(PASSES)]
    text = processor_table([name for name, _ in listed], list(map(_together, *passes)))
    RESULT.write_text(text)
    print(text)


def _together(*passes: dict[str, Any]) -> dict[str, Any]:
    sides = zip(*(found["seconds"] for found in passes), strict=True)
    return passes[0] | {"seconds": [list(itertools.chain(*side)) for side in sides]}


def processor_table(names: list[str], found: list[dict[str, Any]]) -> str:
    """Return the table of CPU times, worst ratio first, below a summary."""
    rows, ratios, least = [], [], []
    for name, case in zip(names, found, strict=True):
        middle, fewest = ([pick(taken) for taken in case["seconds"]] for pick in (median, min))
        ratios.append(middle[0] / middle[1])
        least.append(fewest[0] / fewest[1])
        ms = f"{1e3 * middle[0]:.1f} | {1e3 * middle[1]:.1f}"
        figures = f"{ms} | {ratios[-1]:.2f} | {least[-1]:.2f}"
        rows.append((ratios[-1], f"| {name} | {case['how']} | {figures} |"))
    heading = "| reshard | transport | ms | XLA's ms | ratio | of the least of each |"
    return "\n".join(
        [
            "# Processor time of plain JAX beside XLA's own reshard, rank 3",
            "",
            f"{versions()} {DEVICES} host devices, "
            f"{PROCESSOR_TURNS} turns each in {PASSES} processes.",
            "",
            _summary("Of medians", ratios) + ".",
            "",
            _summary("Of the least of each", least) + ".",
            "",
            heading,
            "| --- " * 6 + "|",
            *(row for _, row in sorted(rows, reverse=True)),
            "",
        ]
    )


def _measured(what: str, listed: list[tuple[str, sw.Reshard]]) -> list[dict[str, Any]]:
    found = _asked(listed, serve)
    print(what)
    _print([name for name, _ in listed], found)
    return found


def _asked(
    listed: list[tuple[str, sw.Reshard]], server: Callable[[], None]
) -> list[dict[str, Any]]:
    """Return the answers of a process with DEVICES devices that runs `server` on the reshards."""
    lines = [json.dumps(Description.of(r, f"case{n}").to_dict()) for n, (_, r) in enumerate(listed)]
    forced = f"--xla_force_host_platform_device_count={DEVICES}"
    run = subprocess.run(
        [sys.executable, "-c", f"from bench import xla_time; xla_time.{server.__name__}()"],
        input="\n".join(lines),
        env=os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": forced},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in run.stdout.splitlines()]


def _print(names: list[str], found: list[dict[str, Any]]) -> None:
    table = Table(title=f"jax_xla beside XLA's reshard, {DEVICES} host devices, ms and bytes")
    for column in ("reshard", "transport", "ms", "XLA ms", "ratio", "XLA again", "bytes", "XLA"):
        table.add_column(column, justify="left" if column in ("reshard", "transport") else "right")
    ratios, same = [], []
    for name, case in zip(names, found, strict=True):
        (ours, theirs, again), nbytes = case["ms"], case["bytes"]
        ratios.append(ours / theirs)
        same.append(again / theirs)
        figures = (f"{ours:.1f}", f"{theirs:.1f}", f"{ratios[-1]:.2f}", f"{same[-1]:.2f}")
        table.add_row(name, case["how"], *figures, *(f"{count:,}" for count in nbytes))
    console = Console()
    console.print(table)
    console.print(_summary("jax_xla", ratios))
    console.print(_summary("XLA's own beside itself", same))


def _summary(what: str, ratios: list[float]) -> str:
    slower = sum(ratio > 1.15 for ratio in ratios)
    return (
        f"{what}, {len(ratios)} reshards: geometric mean {geometric_mean(ratios):.2f}, "
        f"worst {max(ratios):.2f}, {slower} above 1.15"
    )


def _picture(found: list[dict[str, Any]]) -> Chart:
    ranked = sorted((case["ms"][0] / case["ms"][1], case["how"]) for case in found)
    mean = geometric_mean(ratio for ratio, _ in ranked)
    hows = sorted({how for _, how in ranked})
    series = tuple(
        Series(how, tuple((n, r) for n, (r, by) in enumerate(ranked, 1) if by == how), colour)
        for colour, how in enumerate(hows)
    )
    title = f"Time of jax_xla over that of XLA's own reshard, {DEVICES} host devices"
    ticks = ((1.0, "fastest"), (float(len(ranked)), "slowest"))
    rules = ((1.15, "1.15"), (mean, f"geometric mean {mean:.2f}"))
    return Chart(title, f"{len(ranked)} reshards", "ratio of medians", series, ticks, rules=rules)
