"""Reshards for sweeps: all pairs of shardings of a mesh, and random ones from a seed."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

from shardwright.ir import AxisRef, DimSharding, Mesh, Reshard, Sharding
from shardwright.ir import axes as algebra
from shardwright.ir.dtypes import DTYPES


def all_shardings(mesh: Mesh, rank: int) -> list[Sharding]:
    """Every assignment of ordered subsets of the axes to the dimensions."""
    found = []
    for count in range(len(mesh.names) + 1):
        for names in itertools.permutations(mesh.names, count):
            for cuts in itertools.combinations_with_replacement(range(count + 1), rank - 1):
                ends = (0, *cuts, count)
                dims = (names[ends[i] : ends[i + 1]] for i in range(rank))
                found.append(Sharding(mesh, tuple(DimSharding(_full(dim)) for dim in dims)))
    return found


def _full(names: tuple[str, ...]) -> tuple[AxisRef, ...]:
    return tuple(AxisRef(name) for name in names)


def all_pairs(axes: dict[str, int], shape: tuple[int, ...]) -> list[Reshard]:
    """The reshards between all ordered pairs of shardings of a float32 tensor on a mesh."""
    shardings = all_shardings(Mesh(axes), len(shape))
    pairs = itertools.product(shardings, repeat=2)
    return [Reshard(shape, "float32", source, target) for source, target in pairs]


# The largest extent by rank: a few thousand elements, so that a sweep of hundreds takes minutes.
EXTENTS = {1: 60, 2: 23, 3: 9, 4: 6}


def random_reshard(seed: int) -> Reshard:
    """A reshard over at most 8 devices a side: sub-axes, uneven extents, either split, any dtype;
    one mesh, or two with other axes, permuted ids, or other device sets."""
    rng = random.Random(seed)
    rank = rng.choice(list(EXTENTS))
    source_mesh = _random_mesh(rng, rng.choice([2, 3, 4, 6, 8]))
    target_mesh = _other_mesh(rng, source_mesh)
    return Reshard(
        shape=tuple(rng.randint(1, EXTENTS[rank]) for _ in range(rank)),
        dtype=rng.choice([name for name in DTYPES if name != "float64"]),
        source=random_sharding(rng, source_mesh, rank),
        target=random_sharding(rng, target_mesh, rank),
        source_split=rng.choice(["flat", "flat", "nested"]),
        target_split=rng.choice(["flat", "flat", "nested"]),
    )


def kept_reshard(seed: int) -> Reshard:
    """A random reshard with axes or sub-axes, some or all that both meshes have by name, unreduced
    before and after; they split no dimension then. Where the meshes share none, the axes are none.
    """
    rng, reshard = random.Random(seed), random_reshard(seed)
    sides = reshard.source, reshard.target
    common = sorted({*sides[0].mesh.axes} & {*sides[1].mesh.axes})
    refs = [ref for name, size in common for ref in _pieces(rng, name, size)]
    kept = tuple(rng.sample(refs, rng.randint(1, len(refs)))) if refs else ()
    source, target = (with_unreduced(side, kept) for side in sides)
    return replace(reshard, source=source, target=target)


def kept_pairs(axes: dict[str, int], shape: tuple[int, ...]) -> list[Reshard]:
    """The reshards between all ordered pairs of shardings that leave one axis unreduced."""
    found = []
    for name in axes:
        rest = {other: size for other, size in axes.items() if other != name}
        for pair in all_pairs(rest, shape):
            source, target = (
                Sharding(Mesh(axes), side.dims, unreduced=(AxisRef(name),))
                for side in (pair.source, pair.target)
            )
            found.append(replace(pair, source=source, target=target))
    return found


def summed_pairs(axes: dict[str, int], shape: tuple[int, ...]) -> list[Reshard]:
    """The reshards from every sharding that leaves one axis unreduced to every one of values."""
    targets, found = all_shardings(Mesh(axes), len(shape)), []
    for name in axes:
        rest = {other: size for other, size in axes.items() if other != name}
        for side in all_shardings(Mesh(rest), len(shape)):
            source = Sharding(Mesh(axes), side.dims, unreduced=(AxisRef(name),))
            found += [Reshard(shape, "float32", source, target) for target in targets]
    return found


def with_unreduced(sharding: Sharding, refs: tuple[AxisRef, ...]) -> Sharding:
    """The sharding with axes unreduced that split no dimension then."""
    sizes = sharding.mesh.sizes

    def stays(used: AxisRef) -> bool:
        return not any(
            algebra.overlaps(used, ref, sizes) or not algebra.can_coexist(used, ref, sizes)
            for ref in refs
            if ref.name == used.name
        )

    dims = (DimSharding(tuple(filter(stays, dim.axes))) for dim in sharding.dims)
    return replace(sharding, dims=tuple(dims), unreduced=refs)


def _random_mesh(rng: random.Random, count: int, ids: list[int] | None = None) -> Mesh:
    sizes, left = [], count
    while left > 1:
        size = rng.choice([d for d in range(2, left + 1) if left % d == 0])
        sizes.append(size)
        left //= size
    return Mesh(dict(zip("xyzw", sizes, strict=False)), ids)


def _other_mesh(rng: random.Random, mesh: Mesh) -> Mesh:
    kind = rng.choice(["same", "same", "same", "axes", "permuted", "other devices"])
    if kind == "same":
        return mesh
    if kind == "axes":
        return _random_mesh(rng, mesh.size)
    count = mesh.size if kind == "permuted" else rng.choice([1, 2, 4, 6])
    first = 0 if kind == "permuted" else rng.choice([0, 1, mesh.size])
    ids = list(range(first, first + count))
    if kind == "permuted" or rng.random() < 0.3:
        rng.shuffle(ids)
    return _random_mesh(rng, count, ids)


def random_sharding(rng: random.Random, mesh: Mesh, rank: int) -> Sharding:
    """A sharding with axes and sub-axes over random dimensions in random order."""
    refs = [ref for name, size in mesh.axes for ref in _pieces(rng, name, size)]
    rng.shuffle(refs)
    dims: list[list[AxisRef]] = [[] for _ in range(rank)]
    for ref in refs:
        if dims and rng.random() < 0.7:
            rng.choice(dims).append(ref)
    return Sharding(mesh, tuple(DimSharding(tuple(dim)) for dim in dims))


def _pieces(rng: random.Random, name: str, size: int) -> list[AxisRef]:
    inner = [d for d in range(2, size) if size % d == 0]
    if not inner or rng.random() < 0.5:
        return [AxisRef(name)]
    cut = rng.choice(inner)
    return [AxisRef(name, 1, cut), AxisRef(name, cut, size // cut)]


def describe(reshard: Reshard) -> str:
    """A reshard on one line, for the message of a failing test."""
    sides = (
        f"{sharding} {split} on {sharding.mesh}"
        for sharding, split in (
            (reshard.source, reshard.source_split),
            (reshard.target, reshard.target_split),
        )
    )
    return f"{reshard.dtype}{list(reshard.shape)} {' -> '.join(sides)}"


def devices(reshard: Reshard) -> int:
    """How many devices take part."""
    return len({*reshard.source.mesh.device_ids, *reshard.target.mesh.device_ids})


def elements(reshard: Reshard) -> int:
    """Elements of the tensor."""
    return math.prod(reshard.shape)
