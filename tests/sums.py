"""Reshards whose source has partial sums, from a seed."""

from __future__ import annotations

import random
from dataclasses import replace

from cases import random_sharding, with_unreduced

from shardwright.ir import Mesh, Reshard, Sharding
from shardwright.ir.dtypes import DTYPES


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


def of_any_kind(seed: int) -> Reshard:
    """A reshard that reduces or keeps terms, of any dtype, by any operator."""
    rng, given = random.Random(seed), reduction(seed)
    dtype = rng.choice(list(DTYPES))
    operator = rng.choice(["max", "min"] if dtype == "bool" else ["sum", "sum", "max", "min"])
    sides = (
        replace(side, operator=operator if side.unreduced else "sum")
        for side in (given.source, given.target)
    )
    return Reshard(given.shape, dtype, *sides)


def elsewhere(seed: int) -> Reshard:
    """A sum whose target is on another mesh: of other axes, another order, or other devices."""
    rng, given = random.Random(seed), reduction(seed)
    count = given.source.mesh.size
    first = rng.choice([0, 0, count // 2, count])
    ids = rng.sample(range(first, first + count), count)
    mesh = Mesh(rng.choice([{"p": count}, {"p": 2, "q": count // 2}]), ids)
    splits = rng.choice(["flat", "nested"]), rng.choice(["flat", "nested"])
    target = random_sharding(rng, mesh, len(given.shape))
    return Reshard(given.shape, rng.choice(["int16", "bfloat16"]), given.source, target, *splits)
