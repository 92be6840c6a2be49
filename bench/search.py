"""The time to search for basis steps. The search is exact for few shardings, and guided by the
target for many.

The times are CPU times to plan one reshard: first with empty caches, then again with the costs of
collectives on the network cached, as in a process that plans several reshards. Python's garbage
collector is off during the measurement, as in `timeit`. In the first rows, the size of each axis is
a power of one prime. In the other rows, sizes have several prime factors, whose order is also free,
so there are more shardings.
"""

from __future__ import annotations

import gc
import random
from statistics import median
from time import process_time

from rich.console import Console
from rich.table import Table

import shardwright as sw
from bench.reshards import random_sharding
from shardwright.codegen.moves.basis.graph import Basis
from shardwright.codegen.moves.basis.plan import plan_basis
from shardwright.codegen.moves.network.collectives import forget_prices
from shardwright.codegen.moves.plan import network_of

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


def planned(reshard: sw.Reshard, topology: str) -> tuple[float, float]:
    """Return the CPU seconds to plan with empty caches, and to plan the same reshard again."""
    network, taken = network_of(reshard, topology), []
    forget_prices()
    gc.collect()
    gc.disable()
    for _ in range(2):
        start = process_time()
        plan_basis(reshard, network)
        taken.append(process_time() - start)
    gc.enable()
    return taken[0], taken[1]


def main(pairs: int = PAIRS, meshes: tuple[tuple[tuple[int, ...], str], ...] = MESHES) -> None:
    table = Table(title=f"The search, {pairs} random pairs of shardings of rank 3 each")
    for column in ("mesh", "topology", "exact"):
        table.add_column(column)
    for column in ("ms: median", "worst", "above 100", "again: median", "worst", "above 100"):
        table.add_column(column, justify="right")
    for sizes, topology in meshes:
        rng, mesh = random.Random(0), sw.Mesh(dict(zip("xyzw", sizes, strict=False)))
        found, exact = [], True
        for _ in range(pairs):
            source, target = (random_sharding(rng, mesh, len(SHAPE)) for _ in range(2))
            reshard = sw.Reshard(SHAPE, "float32", source, target)
            exact &= Basis(reshard).is_exact
            found.append(planned(reshard, topology))
        figures = [
            f"{figure:.0f}"
            for seconds in zip(*found, strict=True)
            for figure in (
                1e3 * median(seconds),
                1e3 * max(seconds),
                sum(taken > QUICK for taken in seconds),
            )
        ]
        table.add_row("x".join(map(str, sizes)), topology, "yes" if exact else "no", *figures)
    Console().print(table)
