"""Reshards whose source has partial sums, from a seed."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

from cases import all_shardings, random_sharding, with_unreduced

from shardwright.codegen.moves import plan
from shardwright.ir import AxisRef, InputError, Mesh, Reshard, Sharding
from shardwright.ir.dtypes import DTYPES
from shardwright.ir.plan import Plan, SteppedPlan


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


QUICK = "switch:8,latency=1e-12"
"""A network on which bytes alone count, so that replicas share in reducing what is small, too."""


def in_two(reshard: Reshard) -> Plan:
    made = plan(reshard, "direct", topology=QUICK)
    assert made.ops == "reduce_scatter, all_gather"
    return made


MESH, OTHER = Mesh({"x": 2, "y": 4}), Mesh({"p": 8}, [3, 1, 2, 0, 7, 6, 5, 4])


def pair(shape: tuple[int, ...], dtype: str, source: str, target: str, **more: str) -> Reshard:
    mesh = OTHER if '"p"' in target else MESH
    return Reshard(shape, dtype, MESH.sharding(source), mesh.sharding(target), **more)


SHARED = {
    "uneven": pair((13, 9), "bfloat16", '[{"x"}, {}], unreduced={"y"}', "[{}, {}]"),
    "kept": pair((16, 9), "int8", '[{}, {}], unreduced={"x", "y"}', '[{}, {}], unreduced={"x"}'),
    "sub_axes": pair(
        (12,), "float32", '[{}], unreduced={"x", "y"}', '[{"y":(1)2}], unreduced={"x"}'
    ),
    "elsewhere": pair(
        (13, 9),
        "float16",
        '[{"x"}, {}], unreduced=max{"y"}',
        '[{}, {"p":(2)2}]',
        source_split="nested",
        target_split="nested",
    ),
    "beyond": pair((24, 3), "float32", '[{"y"}, {}], unreduced={"x"}', "[{}, {}]"),
}


FOUR, SQUARE = Mesh({"x": 4}), Mesh({"x": 2, "y": 2})
SHARED_ON_TPU = {name: each for name, each in SHARED.items() if name != "elsewhere"} | {
    "aligned": Reshard(
        (32, 512),
        "float32",
        SQUARE.sharding('[{"x"}, {}], unreduced={"y"}'),
        SQUARE.sharding("[{}, {}]"),
    ),
    "unaligned": Reshard(
        (70, 300),
        "bfloat16",
        FOUR.sharding('[{}, {}], unreduced={"x"}'),
        FOUR.sharding("[{}, {}]"),
    ),
}
"""Between meshes of one order, and of each form of kernel."""


def shared(seed: int) -> Plan | None:
    """A random reduction in two exchanges, on one mesh; None where no replicas share in it."""
    given = of_any_kind(seed)
    if given.dtype == "float64":
        given = replace(given, dtype="float32")
    made = plan(given, "direct", topology=QUICK)
    return made if isinstance(made, SteppedPlan) else None


OPERATORS = ("sum", "max", "min")


def placing(seed: int) -> Reshard:
    """A random reshard with new unreduced axes: beside kept and reduced ones, or alone; to a mesh
    of the same devices in the same or another order; both splits, any dtype and operator."""
    rng, given = random.Random(seed), reduction(seed)
    source, mesh = given.source, given.source.mesh
    if rng.random() < 0.4:
        source = Sharding(mesh, source.dims)
    if rng.random() < 0.3:
        mesh = Mesh(mesh.axes, rng.sample(range(mesh.size), mesh.size))
    target = random_sharding(rng, mesh, len(given.shape))
    refs = mesh.refine([*source.used(), *source.unreduced])
    new = rng.sample(refs, rng.randint(1, len(refs)))
    operator, other = rng.choice(OPERATORS), rng.choice(OPERATORS)
    source = replace(source, operator=operator)
    target = with_unreduced(target, mesh.ordered(new))
    try:
        made = replace(given, source=source, target=replace(target, operator=other))
    except InputError:  # of axes that stay the operator stays
        made = replace(given, source=source, target=replace(target, operator=operator))
    splits = rng.choice(["flat", "nested"]), rng.choice(["flat", "nested"])
    dtypes = [d for d in DTYPES if d != "bool" or "sum" not in (operator, other)]
    made = replace(made, source_split=splits[0], target_split=splits[1])
    return replace(made, dtype=rng.choice(dtypes))


def placed(seeds: range) -> list[Reshard]:
    return [reshard for reshard in map(placing, seeds) if reshard.places]


def pairs_with_terms() -> list[Reshard]:
    """All pairs of shardings of a vector on a 2 x 2 mesh, with any axes unreduced on either side
    and some in the target only."""
    mesh = Mesh({"x": 2, "y": 2})
    sides = []
    for sharding in all_shardings(mesh, 1):
        free = [name for name in mesh.names if AxisRef(name) not in sharding.used()]
        for count in range(len(free) + 1):
            for names in itertools.combinations(free, count):
                unreduced = tuple(map(AxisRef, names))
                sides.append(Sharding(mesh, sharding.dims, unreduced=unreduced))
    pairs = itertools.product(sides, repeat=2)
    made = (Reshard((6,), "int32", source, target) for source, target in pairs)
    return [reshard for reshard in made if reshard.places]
