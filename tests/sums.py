"""Reshards whose source has partial sums, from a seed."""

from __future__ import annotations

import random

from cases import random_sharding, with_unreduced

from shardwright.ir import Mesh, Reshard, Sharding


def reduction(seed: int) -> Reshard:
    """A reshard whose source has unreduced axes, or sub-axes, and whose target has none of them,
    some or all."""
    rng = random.Random(seed)
    axes = rng.choice([{"x": 2, "y": 3}, {"x": 4, "y": 2}, {"x": 2, "y": 2, "z": 2}, {"x": 6}])
    mesh, rank = Mesh(axes), rng.randint(0, 3)
    source = random_sharding(rng, mesh, rank)
    free = mesh.refs_free_of(source.used())
    if free:
        unreduced = tuple(rng.sample(free, rng.randint(1, len(free))))
        source = Sharding(mesh, source.dims, unreduced=unreduced)
    shape = tuple(rng.randint(1, 9) for _ in range(rank))
    target = random_sharding(rng, mesh, rank)
    kept = tuple(ref for ref in source.unreduced if rng.random() < 0.4)
    return Reshard(shape, "int64", source, with_unreduced(target, kept))


def ids_differ(reshard: Reshard) -> bool:
    """Whether the two meshes have different devices."""
    return set(reshard.source.mesh.device_ids) != set(reshard.target.mesh.device_ids)
