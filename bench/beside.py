"""Predicted seconds of our plans, of Shardy's own pass and of XLA, on random reshards.

The table compares the basis plans of 500 reshards on up to 128 devices with Shardy's sequences, and
`auto`'s plans of 100 reshards on up to 32 devices with the cheaper of Shardy's and XLA's sequences.
All are priced by the model of a topology. The table is written to `beside.md` in this folder.
`tests/moves/test_peers.py` checks plans of the same reshards.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean

import shardwright as sw
from bench.peers import by_shardy, by_xla, shardy_seconds, versions, xla_seconds
from bench.reshards import random_sharding
from shardwright.codegen.moves.basis.guided import ALIKE
from shardwright.codegen.moves.plan import network_of, plan
from shardwright.ir import AxisRef
from shardwright.ir.plan import Plan

TOPOLOGIES = {
    8: ("switch", "v5e:2x4", "v5p:2x2x2", "h100", "h100:2x4"),
    12: ("switch", "torus:3x4", "h100:3x4"),
    16: ("switch", "v5e:4x4", "v5p:2x2x4", "h100:2x8"),
    24: ("switch", "torus:4x6", "h100:3x8"),
    32: ("switch", "v5e:4x8", "v5p:2x4x4", "h100:4x8"),
    60: ("switch", "torus:6x10"),
    64: ("switch", "v6e:8x8", "v5p:4x4x4", "h100:8x8"),
    96: ("switch", "torus:8x12", "h100:12x8"),
    120: ("switch", "torus:10x12", "h100:15x8"),
    128: ("switch", "v5e:8x16", "v5p:4x4x8", "h100:16x8"),
}
BASIS = 500
XLA_SEED = 10_000
XLA_DEVICES = 32
RESULT = Path(__file__).parent / "beside.md"


def random_case(seed: int, most: int) -> tuple[sw.Reshard, str]:
    """Return a random reshard on up to `most` devices, and a topology for it. Up to four axes,
    whole or cut into sub-axes and some of them unused, split up to four dimensions. Every extent is
    a multiple of the number of devices."""
    rng = random.Random(seed)
    devices = rng.choice([size for size in TOPOLOGIES if size <= most])
    sizes, left = list[int](), devices
    while left > 1:
        whole = len(sizes) == 3
        factor = left if whole else rng.choice([d for d in range(2, left + 1) if left % d == 0])
        sizes.append(factor)
        left //= factor
    mesh, rank = sw.Mesh(dict(zip("xyzw", sizes, strict=False))), rng.randint(1, 4)
    scale = rng.choice([1, 1, 8, 64])
    shape = [devices * rng.choice([1, 1, 2, 4]) for _ in range(rank)]
    shape[rng.randrange(rank)] *= scale
    source, target = (random_sharding(rng, mesh, rank, in_parts) for _ in range(2))
    topology = TOPOLOGIES[devices][seed % len(TOPOLOGIES[devices])]
    return sw.Reshard(tuple(shape), "float32", source, target), topology


def in_parts(rng: random.Random, name: str, size: int) -> list[AxisRef]:
    """Cut an axis into random sub-axes, or return the whole axis."""
    found, pre = list[AxisRef](), 1
    while pre < size:
        inner = [d for d in range(2, size // pre) if size // pre % d == 0]
        factor = rng.choice(inner) if inner and rng.random() < 0.35 else size // pre
        found.append(AxisRef(name) if factor == size else AxisRef(name, pre, factor))
        pre *= factor
    return found


def seconds(made: Plan) -> float:
    """Return the predicted seconds of a plan on its topology."""
    assert made.prediction is not None
    return made.prediction.seconds


def no_worse(ours: float, theirs: float) -> bool:
    """Return whether our seconds exceed the peer's by at most the tolerance ALIKE, within which the
    planner prefers fewer steps."""
    return ours <= (1 + ALIKE) * theirs + 1e-12


@dataclass(frozen=True)
class Row:
    """One reshard: its seed and topology, and the predicted seconds of our plan and the peer's."""

    seed: int
    topology: str
    ours: float
    theirs: float


def beside_shardy(count: int) -> Iterator[Row]:
    """Yield a row for each reshard for which Shardy's pass finds a sequence that leads to the
    target. It compares the basis plan with that sequence."""
    cases = [random_case(seed, max(TOPOLOGIES)) for seed in range(count)]
    found = by_shardy([reshard for reshard, _ in cases])
    for seed, ((reshard, topology), steps) in enumerate(zip(cases, found, strict=True)):
        if steps is not None:
            ours = seconds(plan(reshard, "basis", topology=topology))
            yield Row(seed, topology, ours, shardy_seconds(reshard, steps, topology))


def beside_both(count: int) -> Iterator[Row]:
    """Yield a row for each reshard. It compares `auto`'s plan with the cheaper of XLA's own plan
    and Shardy's."""
    seeds = range(XLA_SEED, XLA_SEED + count)
    cases = [random_case(seed, XLA_DEVICES) for seed in seeds]
    reshards = [reshard for reshard, _ in cases]
    peers = zip(seeds, cases, by_shardy(reshards), by_xla(reshards), strict=True)
    for seed, (reshard, topology), steps, compiled in peers:
        theirs = xla_seconds(reshard, compiled, network_of(reshard, topology))
        if steps is not None:
            theirs = min(theirs, shardy_seconds(reshard, steps, topology))
        yield Row(seed, topology, seconds(plan(reshard, topology=topology)), theirs)


def _lines(peer: str, rows: list[Row]) -> Iterator[str]:
    yield _line(peer, "all", rows)
    for topology in dict.fromkeys(each for listed in TOPOLOGIES.values() for each in listed):
        there = [row for row in rows if row.topology == topology]
        if there:
            yield _line(peer, topology, there)


def _line(peer: str, where: str, rows: Iterable[Row]) -> str:
    listed = list(rows)
    ratios = [row.theirs / row.ours for row in listed if row.ours and row.theirs] or [1.0]
    above = sum(not no_worse(row.ours, row.theirs) for row in listed)
    figures = f"{geometric_mean(ratios):.2f} | {min(ratios):.3f} | {max(ratios):.2f}"
    return f"| {peer} | {where} | {len(listed)} | {figures} | {above} |"


def main(count: int = BASIS) -> None:
    """Print the lines of all topologies, and write the table."""
    peers = {
        "basis beside Shardy": list(beside_shardy(count)),
        "auto beside Shardy and XLA": list(beside_both(-(-count // 5))),
    }
    lines = [line for peer, rows in peers.items() for line in _lines(peer, rows)]
    heading = "| plans | on | reshards | theirs over ours: mean | least | most | ours is above |"
    text = ["# Predicted seconds of plans beside Shardy's and XLA's", "", versions(), ""]
    RESULT.write_text("\n".join([*text, heading, "| --- " * 7 + "|", *lines]) + "\n")
    print("\n".join(line for line in lines if "| all |" in line))
