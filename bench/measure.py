"""Predicted and measured seconds of plain JAX on 8 host devices, before and after a fit.

Random reshards, sums and matmuls are emitted for `cpu:8` and measured as `shardwright measure`
does, in PASSES passes with separate processes. The minimum of a module's medians counts, because
other work on the machine only adds time. Of the modules that take at least QUICK seconds, every
other one is used for the fit and the rest to judge it; each half has COUNT modules. The table is
written to `measure.md`.
"""

from __future__ import annotations

import itertools
import math
import os
import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import geometric_mean

import numpy as np

import shardwright as sw
from bench import reshards
from bench.matmul_time import drawn as matmuls
from bench.matmuls import shardings
from bench.peers import versions
from shardwright.codegen.hardware.presets import file_text, topology_of
from shardwright.codegen.hardware.topology import Topology
from shardwright.codegen.operations.bundles.measure import Measured, measure
from shardwright.codegen.operations.measure.fit import Fit, fit
from shardwright.ir.errors import InputError

DEVICES = 8
TOPOLOGY = f"cpu:{DEVICES}"
COUNT = 40
SPARE = 10
"""The number of extra modules, in case some are too quick."""
PASSES = 3
QUICK = 1e-4
WITHIN = 1.5
MESHES = ({"x": 2, "y": 4}, {"x": 2, "y": 2, "z": 2}, {"x": 8})
ELEMENTS = (2**14, 2**24)
DTYPES = ("float32", "int32", "bfloat16", "int8")
KINDS = (
    "reshard",
    "sum",
    "reshard",
    "matmul",
    "reshard",
)  # odd: both halves have all kinds
RESULT = Path(__file__).parent / "measure.md"


def drawn(count: int, seed: int = 1) -> Iterator[tuple[str, sw.Reshard | sw.Matmul]]:
    """Yield `count` operations with their names. They cycle through the kinds in KINDS."""
    rng, products = random.Random(seed), matmuls(count, seed)
    for number, kind in enumerate(itertools.islice(itertools.cycle(KINDS), count)):
        what: sw.Reshard | sw.Matmul = next(products) if kind == "matmul" else _moved(rng, kind)
        yield f"{kind}_{number}", what


def _moved(rng: random.Random, kind: str) -> sw.Reshard:
    """Return a random reshard or sum. In half of the cases, all extents are multiples of the number
    of devices."""
    mesh, rank = sw.Mesh(rng.choice(MESHES)), rng.choice((2, 2, 3))
    elements = math.exp(rng.uniform(*map(math.log, ELEMENTS)))
    extents = [round(elements ** (1 / rank) * rng.uniform(0.5, 2.0)) for _ in range(rank)]
    unit = rng.choice((1, DEVICES))
    shape = tuple(max(DEVICES, extent - extent % unit) for extent in extents)
    if kind == "sum":
        axis = rng.choice(mesh.names)
        before = rng.choice(shardings([name for name in mesh.names if name != axis], rank))
        source, target = (
            f'{before}, unreduced={{"{axis}"}}',
            rng.choice(shardings(mesh.names, rank)),
        )
        return sw.Reshard(shape, "float32", source, target, mesh=mesh)
    sides = (reshards.random_sharding(rng, mesh, rank) for _ in range(2))
    return sw.Reshard(shape, rng.choice(DTYPES), *sides)


def emitted(root: Path, cases: Sequence[tuple[str, sw.Reshard | sw.Matmul]]) -> None:
    """Write the bundles of operations below a folder."""
    for name, what in cases:
        sw.emit(what, backends=("jax_xla",), topology=TOPOLOGY).write(root / name)


def measured(root: Path) -> list[Measured]:
    """Return the modules below a folder, each with its minimum seconds over all passes. Raises
    RuntimeError for a wrong result."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"
    passes = [measure([root], ("jax_xla",), TOPOLOGY).modules for _ in range(PASSES)]
    wrong = [f"{each.name}: {each.detail}" for found in passes for each in found if each.detail]
    if wrong:
        raise RuntimeError("; ".join(wrong))
    return [
        replace(same[0], seconds=min(each.seconds for each in same))
        for same in zip(*passes, strict=True)
    ]


@dataclass(frozen=True)
class Judged:
    """A module, and the ratio of its predicted to its measured seconds, with the preset and with
    the fit."""

    module: Measured
    before: float
    after: float

    @staticmethod
    def of(module: Measured, fitted: Topology) -> Judged:
        prices = (module.sample.price(each) for each in (topology_of(TOPOLOGY), fitted))
        before, after = (price / module.seconds for price in prices)
        return Judged(module, before, after)


def main(count: int = COUNT) -> None:
    cases = list(drawn(2 * (count + SPARE)))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "generated")
        emitted(root, cases)
        found = {each.name: each for each in measured(root)}
    taken = [found[name] for name, _ in cases]
    RESULT.write_text(text := table(taken, dict(cases), count))
    print(text)


def table(
    measured: list[Measured], cases: dict[str, sw.Reshard | sw.Matmul], count: int = COUNT
) -> str:
    """Fit the model to one half of the slow modules, judge it by the other half, and return the
    page. Raises InputError for fewer than `2 * count` slow modules."""
    taken = [each for each in measured if each.seconds >= QUICK]
    halves = [taken[number::2][:count] for number in range(2)]
    if len(halves[1]) < count:
        raise InputError(
            "too few modules are slow enough to fit",
            got=len(taken),
            expected=f"at least {2 * count}",
        )
    told = fit(topology_of(TOPOLOGY), [each.sample for each in halves[0]])
    judged = [[Judged.of(each, told.topology) for each in half] for half in halves]
    return page(told, judged, cases)


def page(told: Fit, judged: list[list[Judged]], cases: dict[str, sw.Reshard | sw.Matmul]) -> str:
    """Return the page: a summary of both halves, then a table of the modules that judge the fit,
    the worst prediction first."""
    lines = [
        "# Predicted over measured seconds of plain JAX on CPU devices",
        "",
        f"{versions()} {DEVICES} host devices, {os.cpu_count()} cores, {PASSES} passes.",
        "",
        "| modules | predicted by | within 1.5 | within 2 | geometric mean |",
        "| --- " * 5 + "|",
        *itertools.chain.from_iterable(
            (_row(name, half, "before"), _row(name, half, "after"))
            for name, half in zip(("those of the fit", "the other ones"), judged, strict=True)
        ),
        "",
        "The fitted topology:",
        "",
        "```toml",
        *file_text(told.topology).splitlines(),
        "```",
        "",
        *(f"- {each.name}: {each.note}\n" for each in told.figures if each.note),
        "## The other ones",
        "",
        "| what | ms | by the preset | fitted |",
        "| --- " * 4 + "|",
    ]
    for each in sorted(judged[1], key=lambda each: -_factor(each.after)):
        ms = 1e3 * each.module.seconds
        said = _said(cases[each.module.name])
        lines.append(f"| {said} | {ms:.2f} | {each.before:.2f} | {each.after:.2f} |")
    return "\n".join((*lines, ""))


def _row(name: str, half: list[Judged], which: str) -> str:
    ratios = [getattr(each, which) for each in half]
    factors = np.array([_factor(ratio) for ratio in ratios])
    within = " | ".join(str(int((factors <= most).sum())) for most in (WITHIN, 2.0))
    by = "the preset" if which == "before" else "the fit"
    mean = geometric_mean(max(ratio, 1e-9) for ratio in ratios)
    return f"| {len(half)}, {name} | {by} | {within} | {mean:.2f} |"


def _factor(ratio: float) -> float:
    """Return by what factor a prediction is too high or too low."""
    return max(ratio, 1.0 / max(ratio, 1e-9))


def _said(what: sw.Reshard | sw.Matmul) -> str:
    if isinstance(what, sw.Matmul):
        sides = (f"{'x'.join(map(str, s.shape))} {s.sharding}" for s in (what.lhs, what.rhs))
        return f"{' by '.join(sides)} -> {what.out}"
    shape = "x".join(map(str, what.shape))
    return f"{what.dtype} {shape} {what.source} -> {what.target}"


if __name__ == "__main__":
    main()
