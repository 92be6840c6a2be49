"""Reshards to measure: the corpus, and random ones of realistic sizes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import shardwright as sw
from shardwright.codegen.spec.config import load_toml
from shardwright.ir import AxisRef, DimSharding, Sharding
from shardwright.ir.dtypes import DTYPES

CORPUS = Path(__file__).parent.parent / "corpus" / "reshards.toml"
LARGEST_EXTENT = 20_000
MOST_ELEMENTS = 2**28  # so that a device has room for both shards even if no axis splits them
Parts = Callable[[random.Random, str, int], list[AxisRef]]
"""A function that cuts an axis, given its name and size, into sub-axes."""
_SIZES = (4, 6, 8, 8, 8)  # sizes of meshes; most measured topologies have 8 devices
_DTYPES = tuple(name for name in DTYPES if name != "float64")


def corpus() -> dict[str, sw.Reshard]:
    """Return the reshards of the corpus that have a TPU module, by name."""
    listed = load_toml(CORPUS)
    return {d.name: d.reshard() for d in listed if "pallas_tpu" in d.backends}


def random_reshards(count: int) -> dict[str, sw.Reshard]:
    """Return `count` random reshards, by name. A larger count only adds reshards."""
    return {f"random_{seed:03}": random_reshard(seed) for seed in range(count)}


def random_reshard(seed: int, sizes: Sequence[int] = _SIZES) -> sw.Reshard:
    """Return a random reshard of rank 1 to 4, with log-uniform extents from 1 to 20,000, in any
    dtype but float64. Both sides are on one mesh with a size from `sizes`; axes and sub-axes split
    random dimensions, or none."""
    rng = random.Random(seed)
    rank = rng.randint(1, 4)
    mesh = random_mesh(rng, sizes)
    return sw.Reshard(
        shape=_shape(rng, rank),
        dtype=rng.choice(_DTYPES),
        source=random_sharding(rng, mesh, rank),
        target=random_sharding(rng, mesh, rank),
    )


def _shape(rng: random.Random, rank: int) -> tuple[int, ...]:
    """Return random extents, limited so that the tensor has at most MOST_ELEMENTS."""
    extents: list[int] = []
    left = MOST_ELEMENTS
    for _ in range(rank):
        extents.append(min(left, round(LARGEST_EXTENT ** rng.random())))
        left //= extents[-1]
    rng.shuffle(extents)
    return tuple(extents)


def random_mesh(rng: random.Random, sizes: Sequence[int] = _SIZES) -> sw.Mesh:
    """Return a random mesh with a size from `sizes` and up to four axes."""
    axes, left = [], rng.choice(sizes)
    while left > 1:
        axes.append(rng.choice([d for d in range(2, left + 1) if left % d == 0]))
        left //= axes[-1]
    return sw.Mesh(dict(zip("xyzw", axes, strict=False)))


def in_two(rng: random.Random, name: str, size: int) -> list[AxisRef]:
    """Cut an axis at random into two sub-axes, or return the whole axis."""
    inner = [d for d in range(2, size) if size % d == 0]
    if not inner or rng.random() < 0.6:
        return [AxisRef(name)]
    cut = rng.choice(inner)
    return [AxisRef(name, 1, cut), AxisRef(name, cut, size // cut)]


def random_sharding(
    rng: random.Random, mesh: sw.Mesh, rank: int, parts: Parts = in_two
) -> Sharding:
    """Return a random sharding: some axes and sub-axes split random dimensions in random order, the
    others are unused."""
    refs = [ref for name, size in mesh.axes for ref in parts(rng, name, size)]
    rng.shuffle(refs)
    dims: list[list[AxisRef]] = [[] for _ in range(rank)]
    for ref in refs:
        if rng.random() < 0.8:
            rng.choice(dims).append(ref)
    return Sharding(mesh, tuple(DimSharding(tuple(dim)) for dim in dims))
