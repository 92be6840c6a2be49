"""Reshards to measure with: those of the corpus, and random ones of real sizes."""

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
MOST_ELEMENTS = 2**28  # so that a device holds both shards even where no axis splits them
Parts = Callable[[random.Random, str, int], list[AxisRef]]
"""What cuts an axis of a name and a size into sub-axes."""
_SIZES = (4, 6, 8, 8, 8)  # of meshes; most topologies that are measured have 8 devices
_DTYPES = tuple(name for name in DTYPES if name != "float64")


def corpus() -> dict[str, sw.Reshard]:
    """The reshards of the corpus that have a TPU module, by name."""
    listed = load_toml(CORPUS)
    return {d.name: d.reshard() for d in listed if "pallas_tpu" in d.backends}


def random_reshards(count: int) -> dict[str, sw.Reshard]:
    """Random reshards, by name; the first of many are the same whatever the count."""
    return {f"random_{seed:03}": random_reshard(seed) for seed in range(count)}


def random_reshard(seed: int, sizes: Sequence[int] = _SIZES) -> sw.Reshard:
    """Rank 1 to 4, extents from 1 to 20,000 by their logarithm, any dtype but 64-bit floats, axes
    and sub-axes over random dimensions or left out, both sides on one mesh of one of `sizes`."""
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
    """Extents, the later ones cut so that the tensor has no more than MOST_ELEMENTS."""
    extents: list[int] = []
    left = MOST_ELEMENTS
    for _ in range(rank):
        extents.append(min(left, round(LARGEST_EXTENT ** rng.random())))
        left //= extents[-1]
    rng.shuffle(extents)
    return tuple(extents)


def random_mesh(rng: random.Random, sizes: Sequence[int] = _SIZES) -> sw.Mesh:
    """A mesh of one of this many devices; of up to four axes."""
    axes, left = [], rng.choice(sizes)
    while left > 1:
        axes.append(rng.choice([d for d in range(2, left + 1) if left % d == 0]))
        left //= axes[-1]
    return sw.Mesh(dict(zip("xyzw", axes, strict=False)))


def in_two(rng: random.Random, name: str, size: int) -> list[AxisRef]:
    """An axis, whole or as two sub-axes."""
    inner = [d for d in range(2, size) if size % d == 0]
    if not inner or rng.random() < 0.6:
        return [AxisRef(name)]
    cut = rng.choice(inner)
    return [AxisRef(name, 1, cut), AxisRef(name, cut, size // cut)]


def random_sharding(
    rng: random.Random, mesh: sw.Mesh, rank: int, parts: Parts = in_two
) -> Sharding:
    """Axes and sub-axes over random dimensions in random order, some left out."""
    refs = [ref for name, size in mesh.axes for ref in parts(rng, name, size)]
    rng.shuffle(refs)
    dims: list[list[AxisRef]] = [[] for _ in range(rank)]
    for ref in refs:
        if rng.random() < 0.8:
            rng.choice(dims).append(ref)
    return Sharding(mesh, tuple(DimSharding(tuple(dim)) for dim in dims))
