"""How long the search for basis steps takes: exact on few shardings, led by the target on many.

A time is of the processor, of one reshard with nothing remembered from another. The first rows have
axes of one prime factor each, or powers of two; in an axis that mixes primes their order is free
too, and there are more shardings.
"""

from __future__ import annotations

import random
from statistics import median
from time import process_time

from rich.console import Console
from rich.table import Table

import shardwright as sw
from bench.reshards import random_sharding
from shardwright.codegen.planner.basis.bound import Estimates
from shardwright.codegen.planner.basis.graph import Basis
from shardwright.codegen.planner.basis.guided import Guided
from shardwright.codegen.planner.basis.permutes import Permutes
from shardwright.codegen.planner.basis.plan import within
from shardwright.codegen.planner.basis.search import Search
from shardwright.codegen.planner.plan import network_of

SHAPE = (512, 256, 128)
PAIRS = 24
QUICK = 0.1
MESHES = (
    ((16,), "switch"),
    ((2, 8), "h100:2x8"),
    ((4, 4), "v5e:4x4"),
    ((2, 2, 4), "v5p:2x2x4"),
    ((2, 2, 2, 2), "h100:2x8"),
    ((2, 2, 2, 2), "torus:4x4"),
    ((2, 2, 2, 3), "h100:3x8"),
    ((2, 2, 3, 5), "torus:6x10"),
    ((2, 3, 5, 7), "torus:14x15"),
    ((3, 8), "h100:3x8"),
    ((6, 6), "torus:6x6,powers_of_two=1"),
    ((24,), "h100:3x8"),
    ((36,), "torus:6x6"),
    ((60,), "torus:6x10"),
    ((8, 4), "v5e:4x8"),
    ((8, 8), "v5p:4x4x4"),
    ((4, 4, 8), "v5p:4x4x8"),
    ((16, 8), "h100:16x8"),
    ((12, 10), "torus:10x12"),
    ((8, 12), "h100:12x8"),
)


def searched(reshard: sw.Reshard, topology: str) -> tuple[float, int, bool]:
    """Seconds of a search, how many shardings it looked on from, and whether it was exact."""
    start = process_time()
    basis = Basis(reshard)
    estimates = Estimates(basis, network_of(reshard, topology))
    permutes, allowed = Permutes(basis, estimates), within(estimates, None)
    led = Guided(basis, estimates, permutes, allowed)
    path, count = led.run(), led.expanded
    if basis.is_exact:
        search = Search(basis, estimates, permutes, allowed, path)
        search.run()
        count += len(search.expanded)
    return process_time() - start, count, basis.is_exact


def main() -> None:
    """Print the table."""
    table = Table(title=f"The search, {PAIRS} random pairs of shardings of rank 3 each")
    table.add_column("mesh")
    table.add_column("topology")
    table.add_column("exact")
    for column in ("ms: median", "worst", "above 100", "looked on from: median", "most"):
        table.add_column(column, justify="right")
    for sizes, topology in MESHES:
        rng, mesh = random.Random(0), sw.Mesh(dict(zip("xyzw", sizes, strict=False)))
        found = []
        for _ in range(PAIRS):
            source, target = (random_sharding(rng, mesh, len(SHAPE)) for _ in range(2))
            found.append(searched(sw.Reshard(SHAPE, "float32", source, target), topology))
        seconds, counts, exact = zip(*found, strict=True)
        slow = sum(taken > QUICK for taken in seconds)
        times = (f"{1e3 * of(seconds):.0f}" for of in (median, max))
        steps = (f"{of(counts):.0f}" for of in (median, max))
        how = "yes" if all(exact) else "no"
        table.add_row("x".join(map(str, sizes)), topology, how, *times, str(slow), *steps)
    Console().print(table)
