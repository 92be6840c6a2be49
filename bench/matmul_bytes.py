"""The elements that the busiest device receives in sharded matmuls: ours and those of `jax.jit`.

Each case is a triple of shardings, one for each matrix and one for the product. Matrices are evenly
split, and their sizes have one of three ratios. The run takes all triples, or a random part of
them; of triples that differ only in the names of axes of equal size, it takes one. XLA's numbers
are read from its programs for CPU devices, in float32, and for v5e, compiled ahead of time in
bfloat16. On v5e, XLA moves float32 as bfloat16 too, so elements are counted instead of bytes.
`codegen/spec/hlo/collectives.py` counts actual moves: the elements of an all-reduce count twice, as
on a ring.

Ours are planned without a topology. Our modules of a random part are also compiled for both
platforms, to check that they move as many elements as planned.

All 19,622 triples of 2x2x2 take most of an hour of CPU time. If the variable in KEPT_IN names a
file, results are kept there, one per line, and an interrupted run can be continued:

    MATMUL_BYTES=FILE timeout 600 python -m bench matmul_bytes:19622"""

from __future__ import annotations

import functools
import itertools
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import shardwright as sw
from bench.matmuls import shardings, write_modules
from bench.peers import versions
from shardwright.codegen.moves.matmul.plan import plan_matmul

KEPT_IN = "MATMUL_BYTES"
"""The environment variable that names a file of earlier results."""

PIECE = 100
"""The number of matmuls to measure before their results are kept."""

COUNT = 60
"""The number of matmuls of each mesh."""

READ = 40
"""The number of matmuls of each mesh whose modules are compiled."""

MESHES = ({"x": 2, "y": 4}, {"x": 2, "y": 2, "z": 2})
SIZES = ((64, 256, 512), (512, 256, 64), (128, 1024, 128))
TOPOLOGY = "v5e:2x4"
PLATFORMS = {"cpu": "float32", "v5e": "bfloat16"}
QUICKLY = (
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes=true",
    "--xla_cpu_use_fusion_emitters=false",
)
"""Flags that save most of the compile time. Only the HLO is read, so LLVM need not make fast
code."""

LINE = "from bench.matmul_bytes import serve; serve()"
HEADINGS = ("mesh", "matmuls", "beside", "geometric mean", "least", "worst",
            "less / equal / more")  # fmt: skip

Triple = tuple[str, str, str]
"""The shardings of lhs, rhs and the result."""


@dataclass(frozen=True)
class Moved:
    """The elements that the busiest device receives, by our plan and by jit's programs for CPU and
    v5e."""

    planned: int
    cpu: int
    v5e: int

    @property
    def least(self) -> int:
        """The smaller of the two peers' numbers."""
        return min(self.cpu, self.v5e)


def triples(axes: dict[str, int]) -> list[Triple]:
    """Return all triples of shardings in a fixed random order. Of triples that differ only in the
    names of axes of equal size, return only the alphabetically first."""
    texts = shardings(tuple(axes))
    found = [each for each in itertools.product(texts, repeat=3) if each == first(axes, each)]
    random.Random(0).shuffle(found)
    return found


def first(axes: dict[str, int], triple: Triple) -> Triple:
    """Return the alphabetically first of the triples that differ from this one at most in the names
    of axes of equal size."""
    renamed = []
    for names in itertools.permutations(axes):
        if all(axes[old] == axes[new] for old, new in zip(axes, names, strict=True)):
            table = str.maketrans(dict(zip(axes, names, strict=True)))
            lhs, rhs, out = (text.translate(table) for text in triple)
            renamed.append((lhs, rhs, out))
    return min(renamed)


def matmul_of(axes: dict[str, int], triple: Triple, dtype: str = "float32") -> sw.Matmul:
    """Return the matmul of a triple. Its sizes are one of SIZES, chosen by a hash of the triple."""
    i, j, k = SIZES[sum(map(ord, "".join(triple))) % len(SIZES)]
    lhs, rhs, out = triple
    return sw.Matmul(dtype, ((i, j), lhs), ((j, k), rhs), out, mesh=axes)


def measured(axes: dict[str, int], given: Sequence[Triple]) -> list[Moved]:
    """Return, for each triple, the elements that our plan and XLA's programs move."""
    asked = [{"axes": axes, "triple": triple} for triple in given]
    plans = (plan_matmul(matmul_of(axes, triple), listed=0) for triple in given)
    planned = [plan.chosen.cost.received_max // 4 for plan in plans]
    return [Moved(ours, *both) for ours, both in zip(planned, _served(asked), strict=True)]


def kept(axes: dict[str, int], given: Sequence[Triple]) -> list[Moved]:
    """Return the results of `measured`. Read them from the file of KEPT_IN, if any, and add missing
    results to it."""
    file = os.environ.get(KEPT_IN)
    if not file:
        return measured(axes, given)
    found, sizes = _kept(Path(file)), tuple(axes.values())
    missing = [each for each in given if (sizes, each) not in found]
    for start in range(0, len(missing), PIECE):
        piece = missing[start : start + PIECE]
        new = dict(zip(((sizes, each) for each in piece), measured(axes, piece), strict=True))
        with Path(file).open("a") as lines:
            lines.writelines(f"{json.dumps([*at, astuple(moved)])}\n" for at, moved in new.items())
        found |= new
    return [found[sizes, each] for each in given]


def _kept(file: Path) -> dict[tuple[tuple[int, ...], Triple], Moved]:
    lines = file.read_text().splitlines() if file.exists() else []
    rows = map(json.loads, lines)
    return {(tuple(sizes), (lhs, rhs, out)): Moved(*n) for sizes, (lhs, rhs, out), n in rows}


def read(axes: dict[str, int], given: Sequence[Triple]) -> list[tuple[int, int]]:
    """Return, for each triple, the elements that our modules for CPU and for v5e move."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [
            write_modules(
                [plan_matmul(matmul_of(axes, each, dtype), listed=0) for each in given],
                Path(folder) / platform,
            )
            for platform, dtype in PLATFORMS.items()
        ]
        asked = [{"modules": list(map(str, both))} for both in zip(*paths, strict=True)]
        return [(cpu, v5e) for cpu, v5e in _served(asked)]


def _served(asked: list[dict[str, object]]) -> list[Any]:
    flags = " ".join(["--xla_force_host_platform_device_count=8", *QUICKLY])
    told = {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", LINE],
        input="\n".join(map(json.dumps, asked)),
        env={**os.environ, **told, "XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        raise RuntimeError(ran.stderr[-2000:])
    return [json.loads(line) for line in ran.stdout.splitlines()]


def serve() -> None:
    """Read programs to compile, one per line. Print the elements that the busiest device receives
    on CPU and on v5e."""
    import jax
    from jax.experimental import topologies

    described = topologies.get_topology_desc(platform="tpu", topology_name=TOPOLOGY)
    devices = {"cpu": jax.devices(), "v5e": described.devices}
    for line in sys.stdin:
        asked = json.loads(line)
        if "run" in asked:
            print(json.dumps(_is_wrong(asked, devices["cpu"])), flush=True)
            continue
        of = functools.partial(_module if "modules" in asked else _jitted, asked)
        print(json.dumps([of(name, devices[name]) for name in PLATFORMS]), flush=True)


def _jitted(asked: dict[str, Any], platform: str, devices: Any) -> int:
    import jax.numpy as jnp

    matmul, sides = _sides(asked, devices)
    return _moved(jnp.matmul, (matmul.lhs.shape, matmul.rhs.shape), sides, platform)


def _sides(asked: dict[str, Any], devices: Any) -> tuple[sw.Matmul, list[Any]]:
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    matmul = matmul_of(asked["axes"], tuple(asked["triple"]))
    mesh = Mesh(np.array(devices).reshape(*asked["axes"].values()), tuple(asked["axes"]))
    specs = (
        PartitionSpec(
            *(tuple(re.findall(r"\w+", dim)) or None for dim in re.findall("{.*?}", text))
        )
        for text in asked["triple"]
    )
    return matmul, [NamedSharding(mesh, spec) for spec in specs]


def wrong(axes: dict[str, int], given: Sequence[Triple]) -> int:
    """Count the triples for which jit's program for CPU devices returns a wrong product."""
    return sum(_served([{"axes": axes, "triple": triple, "run": True} for triple in given]))


def _is_wrong(asked: dict[str, Any], devices: Any) -> bool:
    import jax
    import jax.numpy as jnp
    import numpy as np

    matmul, sides = _sides(asked, devices)
    rng = np.random.default_rng(0)
    shapes = (matmul.lhs.shape, matmul.rhs.shape)
    a, b = (rng.integers(-3, 4, shape).astype(np.float32) for shape in shapes)
    placed = map(jax.device_put, (a, b), sides[:2])
    return not np.array_equal(jax.jit(jnp.matmul, out_shardings=sides[2])(*placed), a @ b)


def _module(asked: dict[str, Any], platform: str, devices: Any) -> int:
    from shardwright.codegen.checks.load import load

    module = load(Path(asked["modules"][list(PLATFORMS).index(platform)]))
    mesh = module._LHS.mesh_of(devices)
    sides = [side.on(mesh) for side in (module._LHS, module._RHS, module._OUT)]
    shapes = module.LHS_SHAPE, module.RHS_SHAPE
    return _moved(lambda a, b: module.matmul(a, b, mesh), shapes, sides, platform)


def _moved(function: Any, shapes: tuple[Any, Any], sides: list[Any], platform: str) -> int:
    import jax

    from shardwright.codegen.spec.hlo.collectives import received_in_all

    dtype, (*operands, out) = jax.numpy.dtype(PLATFORMS[platform]), sides
    given = [
        jax.ShapeDtypeStruct(shape, dtype, sharding=side)
        for shape, side in zip(shapes, operands, strict=True)
    ]
    text = jax.jit(function, out_shardings=out).lower(*given).compile().as_text()
    return max(received_in_all(text, out.mesh.size)) // dtype.itemsize


def rows(axes: dict[str, int], found: list[Moved]) -> Iterator[str]:
    """Yield the table rows of a mesh, which compare our elements with each peer's, and with the
    smaller of the two."""
    for name in ("cpu", "v5e", "least"):
        peers = [getattr(each, name) for each in found]
        pairs = [(each.planned, peer) for each, peer in zip(found, peers, strict=True)]
        ratios = [ours / peer for ours, peer in pairs if ours and peer] or [1.0]
        less, more = (sum(sign * a < sign * b for a, b in pairs) for sign in (1, -1))
        cells = (
            "x".join(map(str, axes.values())),
            f"{len(found):,} of {len(triples(axes)):,}",
            {"cpu": "jit on CPU", "v5e": "jit on v5e", "least": "the less of both"}[name],
            f"{geometric_mean(ratios):.3f}",
            f"{min(ratios):.3f}",
            f"{max(ratios):.3f}",
            f"{less} / {len(found) - less - more} / {more}",
        )
        yield f"| {' | '.join(cells)} |"


def text_of(found: list[tuple[dict[str, int], list[Moved]]], said: list[str]) -> str:
    """Return the page: a table of elements by mesh, then the lines `said` about individual
    programs."""
    return "\n".join(
        [
            "# Elements that matmuls move beside `jax.jit`",
            "",
            f"{versions()} Elements that the busiest device receives by our plan without a "
            "topology, divided by those of XLA's program with the same shardings. Means and "
            "extremes cover matmuls for which both move something. Shardings that differ only in "
            "the names of axes of equal size count once.",
            "",
            f"| {' | '.join(HEADINGS)} |",
            "| --- " * len(HEADINGS) + "|",
            *(row for axes, moved in found for row in rows(axes, moved)),
            "",
            *said,
            "",
            "The TPU compiler turns reduce-scatters of few elements, or of narrow shards, into an "
            "all-reduce and a slice, which bring twice as much. This explains the modules that "
            "move more than planned on v5e. There would be more of them if modules scattered "
            "along a last dimension instead of a first one that they make for this.",
            "",
        ]
    )


def main(count: int = COUNT) -> None:
    """Print the page. `count`: the number of random matmuls of each mesh, or all if there are
    fewer."""
    found, said = [], []
    for axes in MESHES:
        drawn = triples(axes)[:count]
        moved = kept(axes, drawn)
        found.append((axes, moved))
        said.append(read_line(axes, moved[:READ], read(axes, drawn[:READ])))
        fewer = [at for at, each in zip(drawn, moved, strict=True) if each.least < each.planned]
        said += [wrong_line(axes, len(fewer), wrong(axes, fewer))] if fewer else []
    print(text_of(found, said))


def wrong_line(axes: dict[str, int], fewer: int, not_right: int) -> str:
    """Return a line about jit's programs that move fewer elements than our plans."""
    name = "x".join(map(str, axes.values()))
    return (
        f"On {name}, jit moves less than our plan for {fewer} matmuls; for {not_right} of these "
        "its result on CPU devices is not the product, because a permutation of shards is missing."
    )


def read_line(axes: dict[str, int], moved: list[Moved], modules: list[tuple[int, int]]) -> str:
    """Return a line about the elements that modules' programs move, compared with their plans and
    with jit's programs."""
    name = "x".join(map(str, axes.values()))
    words = []
    for number, platform in enumerate(PLATFORMS):
        ours = [both[number] for both in modules]
        pairs = [(each.planned, getattr(each, platform)) for each in moved]
        beyond, worse = (
            sum(mine > its for mine, its in zip(ours, peers, strict=True))
            for peers in zip(*pairs, strict=True)
        )
        words.append(f"on {platform} {beyond} move more than was planned, {worse} more than jit's")
    return f"Of {len(modules)} modules of {name}, compiled and read, {'; '.join(words)}."
