"""Carries out a plan's JSON step by step on numpy shards, and what it must end with."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from shardwright.codegen.checks import case
from shardwright.codegen.checks.oracle import definition as oracle
from shardwright.codegen.checks.oracle import sums as oracle_terms
from shardwright.codegen.moves.basis.plan import SMALL_BYTES
from shardwright.ir import Mesh, Reshard, Sharding
from shardwright.ir.plan import Plan

Shards = dict[int, np.ndarray]
UFUNCS = {"sum": np.add, "max": np.maximum, "min": np.minimum}


def placement(mesh: Mesh, sharding: Sharding, split: str) -> oracle.Placement:
    """A side of a reshard as the oracle takes it."""
    dims = tuple(tuple((r.name, r.pre, r.size) for r in dim.axes) for dim in sharding.dims)
    return oracle.Placement(mesh.axes, list(mesh.device_ids), dims, split)


def terms(reshard: Reshard) -> dict[int, int]:
    """For every source device which term of the sums it holds: its unreduced coordinates."""
    mesh = reshard.source.mesh
    coordinates = oracle.axis_coordinates(placement(mesh, reshard.source, "flat"))
    numbers = dict.fromkeys(mesh.device_ids, 0)
    for ref in reshard.source.unreduced:
        size = mesh.axis_size(ref.name)
        along = oracle.sub_coordinates(size, ref.pre, ref.size)
        for device in mesh.device_ids:
            at = along[coordinates[device][ref.name]]
            numbers[device] = numbers[device] * mesh.full_size(ref) + at
    return numbers


def values(reshard: Reshard) -> np.ndarray:
    """Distinct integers for every term of every element: [terms, *shape]."""
    count = int(np.prod([reshard.source.mesh.full_size(r) for r in reshard.source.unreduced] or 1))
    shape = (count, *reshard.shape)
    rng = np.random.default_rng(1)
    return rng.integers(1, 2**40, shape)


def before(reshard: Reshard) -> Shards:
    """What every device holds."""
    tensors, own = values(reshard), terms(reshard)
    side = placement(reshard.source.mesh, reshard.source, reshard.source_split)
    held = {term: oracle.shards(side, tensors[term].view(np.uint64)) for term in set(own.values())}
    return {device: held[term][device].view(np.int64) for device, term in own.items()}


def after(reshard: Reshard) -> Shards:
    """What every device shall hold: of sums, with the terms that stay unreduced apart."""
    side = case.placement(reshard.target, reshard.target_split)
    own, target = reshard.source.operator, reshard.target.operator
    made = oracle_terms.terms_of_target(case.placement(reshard.source, "flat"), side)
    empty = np.full(reshard.shape, oracle_terms.identity("int64", target), dtype=np.int64)
    tensors = values(reshard)
    every = [UFUNCS[own].reduce(tensors[list(of)], axis=0) if of else empty for of in made]
    sums = np.stack(every)
    given = sums if reshard.target.unreduced else sums[0]
    shards = oracle.shards(oracle_terms.array_of(side), given.view(np.uint64))
    held = {device: shard.view(np.int64) for device, shard in shards.items()}
    return {d: shard[0] for d, shard in held.items()} if reshard.target.unreduced else held


def run(plan: Plan) -> Shards:
    """Every step of a plan's JSON in turn: sums before copies, all from the shards before."""
    shards = before(plan.reshard)
    made = plan.to_dict(transfers=True)
    ends = _shapes(plan)
    for step, shapes in zip(made["steps"], ends, strict=True):
        operator = plan.reshard.source.operator
        sums = [t for t in step["transfers"] if "reduce" in t]
        assert {t["reduce"] for t in sums} <= {operator}
        start = oracle_terms.identity("int64", operator) if sums else -1
        copies = [t for t in step["transfers"] if "reduce" not in t]
        results = {d: np.full(s, start, dtype=np.int64) for d, s in shapes.items()}
        for move in sums:
            place = results[move["to"]][_at(move["target"])]
            UFUNCS[operator](place, shards[move["from"]][_at(move["source"])], out=place)
        sources = {d: r.copy() for d, r in results.items()} if sums else shards
        for move in copies:
            place = results[move["to"]][_at(move["target"])]
            if not sums:
                assert (place == -1).all(), "written twice"
            place[...] = sources[move["from"]][_at(move["source"])]
        if plan.reshard.places and step["op"] in ("exchange", "replicated_to_unreduced"):
            empty = oracle_terms.identity("int64", plan.reshard.target.operator)
            for result in results.values():
                result[...] = empty if (result == -1).all() else result
        shards = results
    return shards


def _shapes(plan: Plan) -> list[dict[int, tuple[int, ...]]]:
    """The shapes of all shards after each step, by the oracle."""
    found = []
    for step in plan.steps:
        ends = getattr(step, "ends", None)
        sharding = ends.after if ends else plan.reshard.target
        split = ends.after_split if ends else plan.reshard.target_split
        side = placement(sharding.mesh, sharding, split)
        held = oracle.holdings(side, plan.reshard.shape)
        found.append({d: tuple(len(i) for i in along) for d, along in held.items()})
    return found


def _at(box: list[list[int]]) -> tuple[Any, ...]:
    return (*(slice(low, high) for low, high in box), ...)


def held(plan: Plan) -> list[dict[int, int]]:
    """The elements of the shard of every device at the start and after each step."""
    first = {device: shard.shape for device, shard in before(plan.reshard).items()}
    stages = [first, *_shapes(plan)]
    return [{d: int(np.prod(shape)) for d, shape in shapes.items()} for shapes in stages]


def check(plan: Plan) -> None:
    """The plan ends with what the target is, within the memory that it states."""
    reshard = plan.reshard
    found = run(plan) if plan.steps else before(reshard)
    expected = after(reshard)
    assert found.keys() == expected.keys()
    for device, shard in expected.items():
        np.testing.assert_array_equal(found[device], shard)
    stages, said = held(plan), plan.prediction
    if said is None:
        return
    pairs = itertools.pairwise(stages if plan.steps else [*stages, {}])
    both = (a.get(device, 0) + b.get(device, 0) for a, b in pairs for device in {*a, *b})
    most = max(both) * reshard.itemsize
    assert most <= said.peak_bytes
    if said.memory_bytes is not None:
        assert most <= said.memory_bytes
    elif said.why is None:
        largest = [reshard.itemsize * max(shards.values()) for shards in stages]
        assert max(largest) <= max(largest[0], largest[-1], SMALL_BYTES)
