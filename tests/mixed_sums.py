"""Reshards of terms that mix what sums can have, from a seed, and what each of them has."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from cases import random_sharding, with_unreduced
from sums import OPERATORS, QUICK

import shardwright as sw
from shardwright.ir import AxisRef, InputError, Mesh, Reshard, Sharding
from shardwright.ir.dtypes import DTYPES, is_floating
from shardwright.ir.plan import Plan

COUNT = 200
AXES: tuple[dict[str, int], ...] = (
    {"x": 2, "y": 3},
    {"x": 4, "y": 2},
    {"x": 2, "y": 2, "z": 2},
    {"x": 6},
    {"x": 8},
)


def mixed(seed: int) -> Reshard:
    """A reshard that reduces, keeps or makes terms, or does several of it: along axes and sub-axes,
    of uneven extents, either split, another order of devices, any operator and dtype."""
    rng = random.Random(seed)
    while True:
        try:
            made = _drawn(rng)
        except InputError:  # sub-axes that no splitting has both of, or sums of bool
            continue
        # Terms that stay do so in their order of devices, as `jax_xla` wants it.
        stays = not made.fate.kept or made.source.mesh == made.target.mesh
        if stays and (made.source.unreduced or made.target.unreduced):
            return made


def _drawn(rng: random.Random) -> Reshard:
    mesh, rank = Mesh(rng.choice(AXES)), rng.choice([0, 1, 1, 2, 2, 2, 3])
    other = mesh
    if rng.random() < 0.25:
        other = Mesh(mesh.axes, rng.sample(range(mesh.size), mesh.size))
    source = random_sharding(rng, mesh, rank)
    before = _some(rng, mesh.refs_free_of(source.used()), 0.8)
    kept = _some(rng, before, 0.3)
    others = [ref for ref in mesh.refine([*source.used(), *before]) if ref not in before]
    after = other.ordered([*kept, *_some(rng, others, 0.4)])
    target = with_unreduced(random_sharding(rng, other, rank), after)
    operators = rng.choices(OPERATORS, k=2)
    return Reshard(
        tuple(rng.randint(1, 12) for _ in range(rank)),
        rng.choice(list(DTYPES)),
        Sharding(mesh, source.dims, (), before, operators[0] if before else "sum"),
        replace(target, operator=operators[not kept] if after else "sum"),
        *rng.choices(["flat", "nested"], k=2),
    )


def _some(rng: random.Random, refs: Sequence[AxisRef], chance: float) -> tuple[AxisRef, ...]:
    """Some of the axes, in their order, each with a chance."""
    return tuple(ref for ref in refs if rng.random() < chance)


MIXED = [mixed(seed) for seed in range(COUNT)]


def direct(number: int, backend: str = "triton_gpu") -> Plan:
    """The plan of a mixed reshard for kernels, every other one where bytes alone count: in two
    exchanges then, if replicas can share and the backend takes it."""
    given = MIXED[number]
    if given.dtype == "float64" and backend == "pallas_tpu":  # no TPU has it
        given = replace(given, dtype="float32")
    topology = QUICK if number % 2 else None
    return sw.plan(given, "direct", topology=topology, backends=(backend,))


def _is_uneven(reshard: Reshard) -> bool:
    """Whether an extent does not divide."""
    return any(
        extent % math.prod(map(side.mesh.full_size, dim.axes))
        for side in (reshard.source, reshard.target)
        for extent, dim in zip(reshard.shape, side.dims, strict=True)
    )


def _operators(reshard: Reshard) -> set[str]:
    """The operators by which terms are, or become, one value."""
    return {side.operator for side in (reshard.source, reshard.target) if side.unreduced}


FEATURES: dict[str, Callable[[Reshard], bool]] = {
    "reduced": lambda r: r.adds,
    "kept": lambda r: bool(r.fate.kept),
    "new": lambda r: r.places,
    "sums": lambda r: "sum" in _operators(r),
    "maxima": lambda r: "max" in _operators(r),
    "minima": lambda r: "min" in _operators(r),
    "uneven": _is_uneven,
    "sub-axes": lambda r: any(
        ref.pre is not None
        for side in (r.source, r.target)
        for ref in (*side.used(), *side.unreduced)
    ),
    "nested before": lambda r: r.source_split == "nested",
    "nested after": lambda r: r.target_split == "nested",
    "another order": lambda r: r.source.mesh.device_ids != r.target.mesh.device_ids,
    "narrow floats": lambda r: is_floating(r.dtype) and DTYPES[r.dtype] < 4,
    "integers": lambda r: not is_floating(r.dtype) and r.dtype != "bool",
    "several axes": lambda r: len(r.source.unreduced) > 1,
}
"""What a reshard can have, by name."""
