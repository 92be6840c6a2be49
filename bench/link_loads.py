"""What the busiest link carries of TPU modules, all their rounds together, over a direct exchange.

Modules forward on v5e, where devices send directly over a power of two of hops only; what a direct
exchange would load links with is the least that any module there can be held to. The corpus and 50
random reshards on eight chips of three generations, and what is usual on 16 x 16. By the model of
`codegen/hardware/torus.py`; the table is written to `link_loads.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean

import shardwright as sw
from bench.reshards import corpus, random_reshards
from shardwright.codegen.backends import registry
from shardwright.codegen.planner.network.flows import flows
from shardwright.codegen.planner.network.timeline import Sends, cost_of
from shardwright.codegen.planner.plan import network_of
from shardwright.ir.errors import InputError

RESULT = Path(__file__).parent / "link_loads.md"
TOPOLOGIES = ("v5e:2x4", "v5p:2x2x2", "v6e:2x4")
RANDOM = 50
LEAST = 1 << 20
"""Bytes of the busiest link, directly, of those that count: less is mostly what tiles of memory are
padded by."""
LARGE = "v5e:16x16"
FLAT, GRID = sw.Mesh({"x": 256}), sw.Mesh({"x": 16, "y": 16})
SIDES = {
    "all to all over 256": (FLAT, '[{"x"}, {}]', '[{}, {"x"}]'),
    "all to all over a ring of 16": (GRID, '[{"x"}, {}]', '[{}, {"x"}]'),
    "all to all over both rings": (GRID, '[{"x", "y"}, {}]', '[{}, {"x", "y"}]'),
    "gather over 256": (FLAT, '[{"x"}, {}]', "[{}, {}]"),
    "transpose": (GRID, '[{"x"}, {"y"}]', '[{"y"}, {"x"}]'),
}
SHAPE = (8192, 8192)
# What the same modules carried when all devices made all hops, wanted or not, axis after axis, by
# the run of this table on 2026-11-23 that came before: MiB and microseconds.
BEFORE = {
    "all to all over 256": (1.01, 617),
    "all to all over a ring of 16": (16.00, 457),
    "all to all over both rings": (1.01, 617),
    "gather over 256": (68.00, 2547),
    "transpose": (18.00, 459),
}
BEFORE_OF_SMALL = {"v5e:2x4": "2.18, 6.32", "v5p:2x2x2": "", "v6e:2x4": ""}


@dataclass(frozen=True)
class LinkLoad:
    """One module: rounds, bytes of the busiest links of all of them and of the busiest link of a
    direct exchange, and the predicted seconds."""

    name: str
    rounds: int
    carried: float
    direct: float
    seconds: float


def loads(reshards: dict[str, sw.Reshard], topology: str) -> Iterator[LinkLoad]:
    """Yield what links carry of each reshard that has a module there and moves enough."""
    backend = registry.backend("pallas_tpu")
    for name, reshard in reshards.items():
        try:
            made = sw.plan(reshard, "direct", topology=topology)
            backend.refuse(made)
        except InputError:  # other devices, or a mesh whose order is that of no axis
            continue
        network, timeline = network_of(reshard, topology), backend.timeline(made)
        load = network.total(flows(made.exchange, reshard.itemsize))
        if load.nbytes.max() < LEAST and len(reshard.source.mesh.device_ids) <= 8:
            continue
        cost = cost_of(timeline, network)
        sends = [stage for stage in timeline.stages if isinstance(stage, Sends)]
        carried = sum(stage.link_bytes or 0.0 for stage in cost.stages)
        yield LinkLoad(name, len(sends), carried, float(load.nbytes.max()), cost.seconds)


def summary(topology: str, found: Iterable[LinkLoad]) -> str:
    """Return a line: modules that forward, or send at once, and their links over direct ones."""
    listed = list(found)
    cells = [topology]
    for some in ([one for one in listed if one.rounds > 1], [o for o in listed if o.rounds == 1]):
        ratios = [one.carried / one.direct for one in some]
        figures = f"{geometric_mean(ratios):.2f}, {max(ratios):.2f}" if ratios else ""
        cells += [str(len(some)), figures]
    cells.insert(3, BEFORE_OF_SMALL[topology])
    return f"| {' | '.join(cells)} |"


def large() -> Iterator[str]:
    """Yield a line for each case on 16 x 16."""
    cases = {
        name: sw.Reshard(SHAPE, "bfloat16", mesh.sharding(source), mesh.sharding(target))
        for name, (mesh, source, target) in SIDES.items()
    }
    for one in loads(cases, LARGE):
        mib = f"{one.carried / 2**20:.2f} | {one.direct / 2**20:.2f}"
        before, took = BEFORE[one.name]
        yield f"| {one.name} | {mib} | {before:.2f} | {1e6 * one.seconds:.0f} | {took} |"


def main() -> None:
    """Print the tables, and write them."""
    reshards = {**corpus(), **random_reshards(RANDOM)}
    lines = [
        "# The busiest link of TPU modules over that of a direct exchange",
        "",
        "All rounds together: geometric mean and worst. The corpus and 50 random reshards.",
        "",
        "| topology | forward | over direct | before | send at once | over direct |",
        "| --- " * 6 + "|",
        *(summary(topology, loads(reshards, topology)) for topology in TOPOLOGIES),
        "",
        f"Of {SHAPE[0]} x {SHAPE[1]} bfloat16 on {LARGE}:",
        "",
        "| reshard | MiB, busiest links | directly | before | microseconds, predicted | before |",
        "| --- " * 6 + "|",
        *large(),
    ]
    RESULT.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
