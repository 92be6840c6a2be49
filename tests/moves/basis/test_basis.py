"""Basis plans: carried out step by step they give the target, within the memory they state."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from cases import (
    all_pairs,
    describe,
    kept_reshard,
    random_reshard,
    random_sharding,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from simulate import check
from strategies import exactly, message
from sums import ids_differ, reduction

from shardwright.codegen.moves import plan
from shardwright.codegen.moves.memory import shard_bytes
from shardwright.ir import InputError, Mesh, Reshard
from shardwright.ir.plan import Plan
from shardwright.ir.steps import ReduceStep

MATRICES = [
    ({"x": 2, "y": 3}, (6, 12)),
    ({"x": 2, "y": 3}, (7, 5)),
    ({"x": 2, "y": 4}, (8, 16)),
    ({"x": 2, "y": 4}, (13, 11)),
    ({"x": 2, "y": 2, "z": 2}, (8, 8)),
    ({"x": 2, "y": 2, "z": 2}, (9, 7)),
]
TOPOLOGIES = ("switch", "torus:2x4", "hierarchical:2x4")


@pytest.mark.parametrize(("axes", "shape"), MATRICES)
def test_pairs_of_shardings_of_a_matrix(axes: dict[str, int], shape: tuple[int, ...]) -> None:
    check_pairs(axes, shape, 60)


@pytest.mark.slow
@pytest.mark.parametrize(("axes", "shape"), MATRICES)
def test_more_pairs_of_shardings_of_a_matrix(axes: dict[str, int], shape: tuple[int, ...]) -> None:
    check_pairs(axes, shape, 300)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("axes", "shape"), MATRICES)
def test_all_pairs_of_shardings_of_a_matrix(axes: dict[str, int], shape: tuple[int, ...]) -> None:
    check_pairs(axes, shape, 10**6)


def check_pairs(axes: dict[str, int], shape: tuple[int, ...], most: int) -> None:
    """So many of all ordered pairs, or a few more."""
    pairs = all_pairs(axes, shape)
    for number, reshard in enumerate(pairs[:: max(len(pairs) // most, 1)]):
        check(plan(reshard, "basis", topology=TOPOLOGIES[number % 3]))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**9))
def test_random_reshards(seed: int) -> None:
    """Sub-axes, both splits, uneven extents, other axes, permuted devices; where the devices are
    others, an error."""
    reshard = random_reshard(seed)
    devices = [set(side.mesh.device_ids) for side in (reshard.source, reshard.target)]
    if devices[0] != devices[1]:
        assert "the same devices" in message(lambda: plan(reshard, "basis"))
        return
    try:
        check(plan(reshard, "basis"))
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {describe(reshard)}") from error


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9))
def test_random_reductions(seed: int) -> None:
    reshard = reduction(seed)
    try:
        check(plan(reshard, "basis"))
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {describe(reshard)}") from error


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**9))
def test_random_terms(seed: int) -> None:
    """Axes that stay unreduced, as they are; where the basis refuses, the exchange does not."""
    reshard = kept_reshard(seed)
    check(plan(reshard, "direct"))
    try:
        made = plan(reshard, "basis")
    except InputError:  # of other devices, or terms to other places
        assert reshard.source.mesh != reshard.target.mesh
        return
    check(made)


SIXTEEN = [{"x": 4, "y": 4}, {"x": 16}, {"x": 2, "y": 8}, {"x": 3, "y": 4}, {"x": 2, "y": 5},
           {"x": 2, "y": 2, "z": 3}, {"x": 12}, {"x": 2, "y": 3}, {"x": 4}]  # fmt: skip


def two_meshes(rng: random.Random) -> tuple[Mesh, Mesh]:
    """A mesh; and another of the same devices, in their order or not, or of others: as many or not,
    with some in common or none."""
    meshes = [Mesh(axes) for axes in SIXTEEN]
    source, kind = rng.choice(meshes), rng.choice(["same", "same", "permuted", "others"])
    if kind == "others":
        target = rng.choice(meshes)
        return source, Mesh(target.axes, rng.sample(range(16), target.size))
    target = rng.choice([m for m in meshes if m.size == source.size])
    if kind == "permuted":
        target = Mesh(target.axes, rng.sample(range(source.size), source.size))
    return source, target


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**9))
def test_up_to_sixteen_devices(seed: int) -> None:
    """Any strategy, ranks 1 to 3, sub-axes, uneven extents in either split, one mesh or two of the
    same devices or of others, any topology, with a limit on memory and without: the target exactly,
    within what the plan states."""
    rng = random.Random(seed)
    source, target = two_meshes(rng)
    rank = rng.randint(1, 3)
    shape = tuple(rng.randint(1, {1: 40, 2: 17, 3: 7}[rank]) for _ in range(rank))
    sides = (random_sharding(rng, mesh, rank) for mesh in (source, target))
    splits = (rng.choice(["flat", "flat", "nested"]) for _ in range(2))
    reshard = Reshard(shape, "int16", *sides, *splits)
    limit = sum(shard_bytes(reshard)) + rng.choice([0, 10, 1000])
    topology = rng.choice(["switch", "torus:4x4", "v5e:4x4", "hierarchical:4x4", "h100:2x8"])
    for strategy in ("auto", "direct", "basis"):
        chosen = rng.choice([None, limit])
        made = planned(reshard, strategy, topology, chosen)
        try:
            if made is None:
                assert strategy == "basis"
                assert chosen is not None or ids_differ(reshard)
            else:
                check(made)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {describe(reshard)}") from error


def planned(reshard: Reshard, strategy: str, topology: str, limit: int | None) -> Plan | None:
    """The plan; None where the limit leaves none, or where the basis has other devices to reach."""
    try:
        return plan(reshard, strategy, topology=topology, memory_limit=limit)
    except InputError as error:
        if error.rule not in (
            "no sequence of basis steps fits in the memory limit",
            "the basis strategy needs the same devices before and after",
        ):
            raise
        return None


def test_nested_splits_by_other_axes() -> None:
    """Digits that make one number, but 23 rows are cut in 2 and then 8, or in 4 and then 4."""
    sides = (Mesh(axes).sharding('[{"x", "y"}]') for axes in ({"x": 2, "y": 8}, {"x": 4, "y": 4}))
    made = plan(Reshard((23,), "int16", *sides, "nested", "nested"), "basis")
    assert made.ops == "permute"
    check(made)


def test_a_fault_shows() -> None:
    """A step that takes another device's term, or a step left out, fails the check."""
    mesh = Mesh({"x": 2, "y": 2})
    source, target = mesh.sharding('[{"x"}, {}], unreduced={"y"}'), mesh.sharding('[{}, {"x"}]')
    made = plan(Reshard((4, 4), "int64", source, target))
    (number, step) = next((i, s) for i, s in enumerate(made.steps) if isinstance(s, ReduceStep))
    wrong = replace(step, reduction=replace(step.reduction, terms=step.reduction.kept or ()))
    steps = (*made.steps[:number], wrong, *made.steps[number + 1 :])
    with pytest.raises(AssertionError):
        check(replace(made, steps=steps))


def test_the_form_of_a_step() -> None:
    """A reduce-scatter, as JSON has it."""
    mesh = Mesh({"x": 2})
    source, target = mesh.sharding('[{}], unreduced={"x"}'), mesh.sharding('[{"x"}]')
    made = json.loads(plan(Reshard((2,), "int32", source, target)).to_json())
    assert made["strategy"] == "basis"
    (step,) = made["steps"]
    assert {key: step[key] for key in ("op", "axes", "before", "after")} == {
        "op": "reduce_scatter",
        "axes": ['"x"'],
        "before": '[{}], unreduced={"x"}',
        "after": '[{"x"}]',
    }
    first = {"from": 0, "to": 0, "tensor": [[0, 1]], "source": [[0, 1]], "target": [[0, 1]]}
    assert step["transfers"][0] == {**first, "reduce": "sum"}
    assert len(step["transfers"]) == 4
    assert made["bytes"]["received_max"] == made["bytes"]["bound_received_max"] == 4


def test_closed_forms_of_many_devices() -> None:
    """Above 512 devices steps are stated in closed form, sums by the number of their term."""
    mesh = Mesh({"x": 32, "y": 32})
    source = mesh.sharding('[{"x"}, {}], unreduced={"y"}')
    made = plan(Reshard((64, 64), "int8", source, mesh.sharding('[{"x"}, {"y"}]')))
    (step,) = made.to_dict()["steps"]
    assert step["transfers"] is None
    assert step["closed_forms"]["sender"] == "a0 * 32 + term"
    assert step["closed_forms"]["terms"] == 32


def test_what_stays_a_sum_stays_in_its_order() -> None:
    sides = (
        Mesh({"x": 2, "y": 2}).sharding('[{}], unreduced={"x", "y"}'),
        Mesh({"x": 2, "y": 2}, [1, 0, 2, 3]).sharding('[{}], unreduced={"x"}'),
    )
    assert message(lambda: plan(Reshard((8,), "int8", *sides))) == exactly(
        """
        target_mesh: axes that stay unreduced must keep their device order
        got: a different order of devices, and [{}], unreduced={"x"}
        expected: the source's order of devices, then a second reshard to the other order
        """
    )


def test_memory_limits() -> None:
    mesh = Mesh({"x": 2, "y": 3})
    source, target = mesh.sharding('[{"x"}, {"y"}]'), mesh.sharding('[{"y"}, {"x"}]')
    reshard = Reshard((60, 60), "float32", source, target)
    shard = 60 * 60 * 4 // 6
    for strategy in ("direct", "basis"):
        low = message(lambda s=strategy: plan(reshard, s, memory_limit=2 * shard - 1))
        assert low == exactly(
            f"""
            memory_limit: a device cannot hold its source and target shards at once
            got: {2 * shard - 1} bytes
            expected: at least {2 * shard}: {shard} before and {shard} after
            """
        )
        wrong = message(lambda s=strategy: plan(reshard, s, memory_limit="1GiB"))
        assert wrong == exactly(
            f"""
            memory_limit: a memory limit must be a whole number of bytes
            got: '1GiB'
            expected: at least {2 * shard}
            """
        )
    tight = plan(reshard, "basis", memory_limit=2 * shard)
    assert tight.prediction is not None
    assert tight.prediction.peak_bytes == 2 * shard
    check(tight)


def test_a_limit_that_leaves_no_sequence() -> None:
    """Uneven extents, whose shards in between are not as small as they would have to be."""
    mesh = Mesh({"x": 2, "y": 3})
    source, target = mesh.sharding('[{}, {"x"}, {"y"}]'), mesh.sharding('[{"x"}, {}, {}]')
    reshard = Reshard((3, 4, 2), "int64", source, target)
    limit = sum(shard_bytes(reshard))
    assert message(lambda: plan(reshard, "basis", memory_limit=limit)) == exactly(
        f"""
        memory_limit: no sequence of basis steps fits in the memory limit
        got: {limit} bytes
        expected: strategy direct, which holds source and target only, or a larger limit
        """
    )
    check(plan(reshard, topology="switch", memory_limit=limit))


def test_auto() -> None:
    """Without a topology what moves least; with one, what is cheapest: small tensors take the
    steps with fewer messages, large ones the exchange."""
    mesh = Mesh({"x": 4, "y": 4})
    source, target = mesh.sharding('[{"x", "y"}, {}]'), mesh.sharding('[{}, {"x", "y"}]')
    small, large = (Reshard((n, n), "float32", source, target) for n in (16, 8192))
    assert plan(small).strategy == plan(large).strategy == "direct"
    quick = plan(small, topology="switch").prediction
    assert plan(small, topology="switch").strategy == "basis"
    assert quick.seconds < plan(small, "direct", topology="switch").prediction.seconds
    assert plan(large, topology="switch").strategy == "direct"
    assert plan(small, topology="switch", among=("direct",)).strategy == "direct"
    assert plan(small).prediction is None
