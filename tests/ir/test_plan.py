"""Direct plans: the lower bound is met, every element arrives once, senders are balanced."""

from __future__ import annotations

import itertools
import json
import math
import shlex

import numpy as np
import pytest
from cases import all_pairs, describe, random_reshard
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import held_by
from sweeps import swept
from typer.testing import CliRunner

from shardwright.codegen.cli import app
from shardwright.codegen.moves import plan
from shardwright.codegen.moves.holders import Loads, candidates
from shardwright.codegen.spec.description import Description
from shardwright.codegen.text.context import plan_hash
from shardwright.ir import Mesh, Reshard
from shardwright.ir.dtypes import DTYPES
from shardwright.ir.errors import InputError
from shardwright.ir.exchange import Exchange
from shardwright.ir.plan import DirectPlan, SteppedPlan, direct_of
from shardwright.ir.transfers import enumerate_transfers

MATRICES = [
    ({"x": 2, "y": 3}, (6, 6)),
    ({"x": 2, "y": 3}, (7, 5)),
    ({"x": 2, "y": 4}, (8, 16)),
    ({"x": 2, "y": 4}, (13, 11)),
    ({"x": 2, "y": 2, "z": 2}, (8, 8)),
    ({"x": 2, "y": 2, "z": 2}, (9, 7)),
]


def replayed(reshard: Reshard, steps: list[dict]) -> tuple[dict[int, int], dict[int, int]]:
    """Carries out the transfers of a plan's JSON on numbered elements; every target element is
    written once and right. Elements received and sent by device."""
    tensor = np.arange(math.prod(reshard.shape)).reshape(reshard.shape)
    held, wanted = sides(reshard)
    shards = {device: tensor[slices(box)] for device, box in held.items()}
    results = {device: np.full_like(tensor[slices(box)], -1) for device, box in wanted.items()}
    received, sent = dict.fromkeys(wanted, 0), dict.fromkeys(held, 0)
    (step,) = steps
    for move in step["transfers"]:
        values = shards[move["from"]][slices(move["source"])]
        place = results[move["to"]][slices(move["target"])]
        assert values.size
        assert (place == -1).all(), "written twice"
        np.testing.assert_array_equal(values, tensor[slices(move["tensor"])])
        place[...] = values
        if move["from"] != move["to"]:
            received[move["to"]] += values.size
            sent[move["from"]] += values.size
    for device, box in wanted.items():
        np.testing.assert_array_equal(results[device], tensor[slices(box)])
    return received, sent


def sides(reshard: Reshard) -> tuple[dict, dict]:
    """What every device holds and wants, by the definition (flat) or by the layout (nested)."""
    exchange = plan(reshard).exchange
    found = []
    for side, layout, split in (
        (reshard.source, exchange.source, reshard.source_split),
        (reshard.target, exchange.target, reshard.target_split),
    ):
        boxes = dict(zip(side.mesh.device_ids, layout.boxes().tolist(), strict=True))
        if split == "flat":
            for device, box in held_by(side, reshard.shape).items():
                ours = [tuple(b) if b[0] < b[1] else (0, 0) for b in boxes[device]]
                assert ours == box
        found.append(boxes)
    return found[0], found[1]


def slices(box: list) -> tuple[slice, ...]:
    return tuple(slice(low, high) for low, high in box)


def lacking(reshard: Reshard) -> dict[int, int]:
    """Elements of its target shard that each device does not hold, by sets of elements."""
    tensor = np.arange(math.prod(reshard.shape)).reshape(reshard.shape)
    held, wanted = sides(reshard)
    missing = {}
    for device, box in wanted.items():
        own = tensor[slices(held[device])].ravel().tolist() if device in held else []
        missing[device] = len(set(tensor[slices(box)].ravel().tolist()) - set(own))
    return missing


def check_plan(reshard: Reshard) -> dict:
    """All that a direct plan promises, from its JSON."""
    made = json.loads(plan(reshard).to_json())
    received, sent = replayed(reshard, made["steps"])
    assert received == lacking(reshard)
    size, moved = DTYPES[reshard.dtype], made["bytes"]
    assert moved["received_max"] == moved["bound_received_max"] == max(received.values()) * size
    assert moved["received_total"] == moved["bound_received_total"]
    assert moved["received_total"] == sum(received.values()) * size
    assert moved["sent_max"] == max(sent.values()) * size
    assert moved["bound_sent_max"] <= moved["sent_max"]
    return moved


@pytest.mark.parametrize(("axes", "shape"), MATRICES)
def test_pairs_of_shardings_of_a_matrix(axes: dict[str, int], shape: tuple[int, ...]) -> None:
    """A part of all ordered pairs; the slow test takes them all."""
    pairs = all_pairs(axes, shape)
    for reshard in pairs[:: 1 + len(pairs) // 150]:
        check_plan(reshard)


@pytest.mark.parametrize("number", swept(range(1, 1 + len(MATRICES)), 2))
def test_all_pairs_of_shardings_of_a_matrix(number: int) -> None:
    for reshard in all_pairs(*MATRICES[number - 1]):
        check_plan(reshard)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**9))
def test_random_reshards(seed: int) -> None:
    """Sub-axes, both splits, other axes, permuted ids, other device sets."""
    reshard = random_reshard(seed)
    try:
        check_plan(reshard)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {describe(reshard)}") from error


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**9))
def test_loads_are_what_the_transfers_carry(seed: int) -> None:
    """The load of every sender under every candidate rule, against enumeration."""
    reshard = random_reshard(seed)
    loads = Loads.of(reshard)
    for rule in candidates(loads.exchange):
        moved = enumerate_transfers(Exchange.of(reshard, rule))
        ids = list(reshard.source.mesh.device_ids)
        sent = dict.fromkeys(ids, 0)
        remote = ~moved.is_local
        for sender, count in zip(moved.sender[remote], moved.elements[remote], strict=True):
            sent[int(sender)] += int(count)
        assert [sent[device] for device in ids] == loads.sent(rule).tolist(), (seed, rule)


def test_senders_are_balanced() -> None:
    """Over all pairs on even matrices of some size: mean 1.02 of the bound, 1.25 at worst."""
    ratios = []
    for axes, shape in (({"x": 2, "y": 3}, (66, 72)), ({"x": 2, "y": 4}, (64, 96))):
        for reshard in all_pairs(axes, shape):
            moved = plan(reshard).traffic
            if moved.bound_sent_max:
                ratios.append(moved.sent_max / moved.bound_sent_max)
    assert np.mean(ratios) <= 1.02
    assert max(ratios) <= 1.25


def test_replicas_share_the_sending() -> None:
    """The case in which the holder with the receiver's own coordinates sends twice the bound."""
    mesh = Mesh({"x": 4, "y": 2})
    reshard = Reshard(
        (64, 8), "float32", mesh.sharding('[{"x"}, {}]'), mesh.sharding('[{"y"}, {}]')
    )
    moved = check_plan(reshard)
    assert moved["sent_max"] == moved["bound_sent_max"]


def test_unreduced_axes_that_stay() -> None:
    """Devices that differ along an axis unreduced on both sides exchange nothing."""
    mesh = Mesh({"x": 2, "y": 2})
    source = mesh.sharding('[{"x"}, {}], unreduced={"y"}')
    target = mesh.sharding('[{}, {"x"}], unreduced={"y"}')
    moved = plan(Reshard((4, 4), "float32", source, target)).transfers()
    assert len(moved) == 8
    assert (moved.sender % 2 == moved.receiver % 2).all()
    assert moved.tensor.shape == (8, 2, 2)


def test_plan_of_many_devices_is_closed_form() -> None:
    """Above 512 devices transfers are not enumerated unless asked for."""
    mesh = Mesh({"x": 32, "y": 32})
    reshard = Reshard(
        (64, 64), "int8", mesh.sharding('[{"x"}, {"y"}]'), mesh.sharding('[{"y"}, {"x"}]')
    )
    made = plan(reshard)
    (step,) = made.to_dict()["steps"]
    assert step["transfers"] is None
    assert step["closed_forms"] == {
        "source_shard": ["position // 32", "position % 32"],
        "source_range": [
            ["position // 32 * 2", "position // 32 * 2 + 2"],
            ["position % 32 * 2", "position % 32 * 2 + 2"],
        ],
        "target_shard": ["position % 32", "position // 32"],
        "target_range": [
            ["position % 32 * 2", "position % 32 * 2 + 2"],
            ["position // 32 * 2", "position // 32 * 2 + 2"],
        ],
        "holder": "a0 * 32 + a1",
        "pieces": 1,
    }
    assert len(made.to_dict(transfers=True)["steps"][0]["transfers"]) == 32 * 32


def test_orders_of_devices_do_not_matter_to_the_bytes() -> None:
    axes = {"x": 2, "y": 2}
    ids = itertools.permutations(range(4))
    totals = set()
    for order in ids:
        mesh = Mesh(axes, list(order))
        reshard = Reshard(
            (4, 4), "int8", mesh.sharding('[{"x"}, {"y"}]'), mesh.sharding('[{"y"}, {"x"}]')
        )
        totals.add(check_plan(reshard)["received_total"])
    assert totals == {8}


def test_a_dozen_through_the_command_line() -> None:
    """`plan --json` prints what `to_json` says, for uneven pairs on 2x3 and two meshes."""
    reshards = all_pairs({"x": 2, "y": 3}, (7, 5))[::12]
    reshards += [random_reshard(seed) for seed in (3, 8, 11)]
    assert len(reshards) >= 12
    for reshard in reshards:
        words = Description.of(reshard, "case").command().split(" --name ")[0]
        arguments = shlex.split(words)[2:]
        result = CliRunner().invoke(app, ["plan", *arguments, "--json"])
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout) == json.loads(plan(reshard).to_json())


def test_a_plan_is_direct_or_of_steps() -> None:
    """Each has what is its own only; what is common is the same of both."""
    mesh = Mesh({"x": 4})
    reshard = Reshard((8,), "int8", mesh.sharding('[{"x"}]'), mesh.sharding("[{}]"))
    direct, stepped = (plan(reshard, strategy) for strategy in ("direct", "basis"))
    assert isinstance(direct, DirectPlan)
    assert isinstance(stepped, SteppedPlan)
    assert (direct.strategy, direct.ops) == ("direct", "exchange")
    assert (stepped.strategy, stepped.ops) == ("basis", "all_gather")
    assert not hasattr(stepped, "exchange")
    assert direct.outline is direct.exchange
    assert stepped.outline is stepped.outline
    assert stepped.outline == direct.outline
    assert direct.devices == stepped.devices == 4
    assert direct_of(direct) is direct


def test_steps_are_not_taken_for_an_exchange() -> None:
    mesh = Mesh({"x": 4})
    reshard = Reshard((8,), "int8", mesh.sharding("[{}]"), mesh.sharding("[{}]"))
    with pytest.raises(InputError) as caught:
        direct_of(plan(reshard, "basis"))
    assert str(caught.value) == (
        "strategy: the strategy must be direct, whose plan is a single exchange\n"
        "got: basis, no steps\n"
        "expected: direct; `shardwright plan` lists the steps of others"
    )


def test_plans_of_cotangents_have_their_own_hash() -> None:
    """A module that moves cotangents back is not the peer of one that moves values."""
    mesh = Mesh({"x": 2})
    source, target = mesh.sharding('[{}], unreduced={"x"}'), mesh.sharding('[{"x"}]')
    hashes = {
        plan_hash(plan(Reshard((4,), "float32", source, target, transposed=back)))
        for back in (False, True)
    }
    assert len(hashes) == 2
