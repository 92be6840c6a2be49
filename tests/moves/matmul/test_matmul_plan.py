"""The choice of a matmul's plan: the four cases, bounds, known choices, loops."""

from __future__ import annotations

import json
import random
import re
from collections import Counter

import pytest
from matmuls import matrix_shardings, random_matmul
from strategies import message

import shardwright as sw
from shardwright.codegen.hardware.presets import topology_of
from shardwright.codegen.moves.matmul.candidates import multiplications
from shardwright.codegen.moves.matmul.moves import Movements, bound_of
from shardwright.codegen.moves.matmul.plan import plan_matmul
from shardwright.codegen.moves.network.links import Network
from shardwright.codegen.show.matmul_explorer import matmul_explorer
from shardwright.codegen.show.matmul_review import matmul_page
from shardwright.ir.errors import InputError
from shardwright.ir.matmul import SIDES
from shardwright.ir.matmul_plan import MatmulPlan

EIGHT = sw.Mesh({"d": 8})
MIB = 2**20


def planned(lhs: str, rhs: str, out: str, mesh: sw.Mesh = EIGHT, **given: object) -> MatmulPlan:
    shapes = given.pop("shapes", ((64, 128), (128, 256)))
    dtype = given.pop("dtype", "float32")
    a, b = shapes  # type: ignore[misc]
    return plan_matmul(sw.Matmul(dtype, (a, lhs), (b, rhs), out, mesh=mesh), **given)  # type: ignore[arg-type]


def ops(plan: MatmulPlan) -> tuple[str, ...]:
    return tuple(move.ops for move in plan.chosen.moves)


@pytest.mark.parametrize(
    ("lhs", "rhs", "out", "case", "wanted"),
    [
        ("P('d')", "P()", "P('d')", 1, ("", "", "")),
        ("P(None, 'd')", "P()", "P()", 2, ("", "slice", "all_reduce")),
        ("P(None, 'd')", "P('d')", "P()", 3, ("", "", "all_reduce")),
        ("P(None, 'd')", "P('d')", "P('d')", 3, ("", "", "reduce_scatter")),
        ("P(None, 'd')", "P('d')", '[{}, {}], unreduced={"d"}', 3, ("", "", "")),
        ("P('d')", "P(None, 'd')", "P('d')", 4, ("", "all_gather", "")),
    ],
)
def test_the_four_cases(lhs: str, rhs: str, out: str, case: int, wanted: tuple[str, ...]) -> None:
    shapes = ((64, 128), (128, 8)) if case == 4 else ((16, 128), (128, 16))
    plan = planned(lhs, rhs, out, shapes=shapes, listed=0)
    assert (plan.case, ops(plan)) == (case, wanted)


def test_a_contracting_dimension_that_one_operand_splits_is_gathered_where_that_is_less() -> None:
    plan = planned("P(None, 'd')", "P()", "P()", shapes=((8, 16), (16, 512)), listed=0)
    assert (plan.case, ops(plan)) == (2, ("all_gather", "", ""))


def test_weights_of_zero_3_stay_where_they_are() -> None:
    """XLA gathers 224 MiB of weights for a batch of 8 rows."""
    shapes = ((8, 8192), (8192, 8192))
    plan = planned("P('d')", "P('d')", "P('d')", shapes=shapes, listed=2)
    assert plan.chosen.cost.received_max < 0.45 * MIB
    assert plan.chosen.cost.received[1] == 0
    on_v5e = planned("P('d')", "P('d')", "P('d')", shapes=shapes, topology="v5e:2x4", listed=0)
    assert on_v5e.chosen.cost.received_max < 0.45 * MIB
    assert max(other.cost.received_max for other in plan.others) == 224 * MIB


def test_the_small_operand_of_case_four_is_gathered() -> None:
    """`facts`: 2.25 MiB where XLA moves 12 of bfloat16."""
    mesh = sw.Mesh({"x": 2, "y": 4})
    shapes = ((256, 1024), (1024, 4096))
    plan = planned(
        '[{"x"}, {"y"}]', '[{"y"}, {"x"}]', '[{"x"}, {"y"}]', mesh, shapes=shapes, listed=0
    )
    assert plan.case == 4
    whole = 4 * 1024 * 4096
    assert plan.chosen.cost.received_max < whole / 2


def test_the_example_of_the_four_cases() -> None:
    """8 x 2048 by 2048 x 8192 on 4 x 2: lhs is gathered along Y, nothing else moves."""
    mesh = sw.Mesh({"X": 4, "Y": 2})
    shapes = ((8, 2048), (2048, 8192))
    plan = planned("P('X','Y')", "P(None,'Y')", "P('X','Y')", mesh, shapes=shapes, dtype="bf16")
    assert ops(plan) == ("all_gather", "", "")
    assert plan.chosen.cost.received == (2 * 1024 * 2, 0, 0)
    assert [case.number for case in plan.cases] == [1, 2]
    assert len(plan.others) == 4


def test_a_sum_still_to_be_made_waits() -> None:
    """The product of a term is a term of the product: nothing moves before it."""
    plan = planned('[{}, {}], unreduced={"d"}', "P()", "P()", shapes=((64, 64), (64, 8)), listed=0)
    assert ops(plan) == ("", "", "all_reduce")
    assert [case.number for case in plan.cases] == [0]


def test_what_is_moved_is_never_less_than_its_bound() -> None:
    rng = random.Random(5)
    network = Network(topology_of("switch"), 8)
    looked = 0
    for _ in range(6):
        matmul = random_matmul(rng)
        movements = Movements(network, by_bytes=True)
        for each in list(multiplications(matmul))[::17]:
            for side in SIDES:
                try:
                    move = each.movement(side)
                except InputError:
                    continue
                planned = movements.of(move)
                assert planned.received >= bound_of(move)
                if not move.adds and not move.places:
                    assert planned.received == bound_of(move)
                looked += 1
    assert looked > 20


def brought(plan: MatmulPlan) -> int:
    """The most bytes that a device receives, counted transfer by transfer."""
    found: Counter[int] = Counter()
    for side in SIDES:
        move = plan.chosen.move(side)
        for phase in (phase for step in move.listed() for phase in step.phases()):
            moved = phase.transfers
            for sender, receiver, count in zip(
                moved.sender.tolist(), moved.receiver.tolist(), moved.elements.tolist(), strict=True
            ):
                found[receiver] += count * move.reshard.itemsize * (sender != receiver)
    return max(found.values(), default=0)


def test_the_busiest_device_is_one_device() -> None:
    """Movements with different busiest devices bring less to one device than their sum."""
    sides = ((13, 24), "P(None, 'x')"), ((24, 29), "P()"), "P(None, ('x', 'y'))"
    plan = plan_matmul(sw.Matmul("bf16", *sides, mesh="x=4,y=2"))
    cost = plan.chosen.cost
    assert (cost.received_max, sum(cost.received), cost.received) == (160, 168, (72, 0, 96))
    assert json.loads(plan.to_json())["chosen"]["received_max"] == 160
    assert "at most 160 bytes to a device" in repr(plan)
    assert "bring at most 160 bytes to a device" in matmul_explorer(plan, "m")
    assert "| 160 |" in matmul_page(plan, "m", "make")
    files = sw.emit(plan, backends=("jax_xla", "triton_gpu")).files("m")
    wire = "The busiest device receives ([0-9]+ bytes.*)\\."
    found = [re.findall(wire, files[f"{name}.py"]) for name in ("jax_xla", "triton_gpu")]
    assert found == [
        ["184 bytes, padding included"],
        ["160 bytes"],
    ]
    rng = random.Random(7)
    apart = 0
    for _ in range(40):
        random_plan = plan_matmul(random_matmul(rng), listed=0)
        each = random_plan.chosen.cost
        assert each.received_max == brought(random_plan)
        apart += each.received_max < sum(each.received)
    assert apart > 0


def test_every_sharding_has_a_candidate() -> None:
    mesh = sw.Mesh({"x": 2, "y": 3})
    shardings = matrix_shardings(("x", "y"))
    assert len(shardings) == 11
    rng = random.Random(1)
    for _ in range(12):
        lhs, rhs, out = (rng.choice(shardings) for _ in range(3))
        plan = planned(lhs, rhs, out, mesh, shapes=((6, 7), (7, 9)), listed=0)
        least = [each.flops for each in multiplications(plan.matmul)]
        assert plan.considered == len(least)
        assert plan.chosen.multiplication.flops >= min(least)


@pytest.mark.parametrize("ways", ["one", "both"])
def test_loops_that_are_forced(ways: str) -> None:
    shapes = ((256, 128), (128, 8))
    gathered = planned("P('d')", "P('d')", "P('d')", loop=ways, listed=0, shapes=shapes)
    loop = gathered.chosen.loop
    assert loop is not None
    assert (loop.side, loop.count, loop.directions) == ("rhs", 8, 1 if ways == "one" else 2)
    shapes = ((16, 128), (128, 16))
    scattered = planned("P(None,'d')", "P('d')", "P('d')", loop=ways, listed=0, shapes=shapes)
    assert scattered.chosen.loop is not None
    assert scattered.chosen.loop.side == "out"


def test_a_loop_is_taken_where_a_topology_says_that_it_takes_less() -> None:
    shapes = ((4096, 4096), (4096, 4096))
    given = {"shapes": shapes, "dtype": "bfloat16", "listed": 0}
    mesh = sw.Mesh({"d": 4}, device_ids=[0, 1, 3, 2])  # a ring of the torus
    auto = planned("P('d')", "P('d')", "P('d')", mesh, topology="v5p:2x2x1", **given)
    never = planned("P('d')", "P('d')", "P('d')", mesh, topology="v5p:2x2x1", loop="never", **given)
    assert auto.chosen.loop is not None
    assert auto.chosen.cost.seconds < 0.95 * never.chosen.cost.seconds
    assert planned("P('d')", "P('d')", "P('d')", mesh, **given).chosen.loop is None


def test_on_a_processor_nothing_is_repeated_and_rows_are_gathered() -> None:
    """Without a topology bytes come first; a processor does what its devices repeat one by one."""
    axes, shapes = sw.Mesh({"x": 2, "y": 4}), ((1024, 1024), (1024, 1024))
    sides = ('[{"y", "x"}, {}]', '[{"y", "x"}, {}]', "[{}, {}]")
    plan = planned(*sides, axes, shapes=shapes, topology="cpu:8", listed=0)
    assert ops(plan) == ("", "all_gather", "all_gather")
    assert plan.chosen.cost.flops * 8 == plan.matmul.flops
    shapes = ((128, 128), (128, 512))
    by_bytes = planned("P(None, 'd')", "P()", "P()", shapes=shapes, listed=0)
    on_cpu = planned("P(None, 'd')", "P()", "P()", shapes=shapes, topology="cpu:8", listed=0)
    assert by_bytes.chosen.cost.flops > on_cpu.chosen.cost.flops


def test_a_processor_has_no_loops_but_those_that_are_asked_for() -> None:
    shapes = ((4096, 4096), (4096, 4096))
    given = {"shapes": shapes, "topology": "cpu:8", "listed": 0}
    assert planned("P('d')", "P('d')", "P('d')", **given).chosen.loop is None
    assert planned("P('d')", "P('d')", "P('d')", loop="one", **given).chosen.loop is not None


def test_a_loop_that_there_is_none_of() -> None:
    assert message(
        lambda: planned("P('d')", "P()", "P('d')", loop="one", shapes=((9, 7), (7, 5)))
    ) == (
        "loop: no all-gather of an operand or reduce-scatter of the result can run as this loop: "
        "the dimension that it gathers or scatters must divide evenly into its shards\n"
        'got: one, of lhs [{"d"}, {}] and rhs [{}, {}] to [{"d"}, {}]\n'
        'expected: "auto" or "never"'
    )


def test_an_unknown_loop() -> None:
    assert message(lambda: planned("P()", "P()", "P()", loop="round")) == (
        "loop: no such loop\ngot: round\nexpected: one of auto, never, one, both, pulled"
    )


@pytest.mark.parametrize("topology", ["v4:2x2x1", "v5e:2x4", "v5p:2x2x2", "v6e:2x4", "tpu7x:2x2x1"])
def test_integers_of_64_bits_on_a_tpu(topology: str) -> None:
    assert message(lambda: planned("P()", "P()", "P()", dtype="int64", topology=topology)) == (
        f"dtype: TPUs cannot multiply 64-bit integers\ngot: int64, for {topology}\nexpected: int32"
    )


@pytest.mark.parametrize("topology", [None, "cpu:8", "h100:8"])
def test_integers_of_64_bits_elsewhere(topology: str | None) -> None:
    plan = planned("P('d')", "P()", "P('d')", dtype="int64", topology=topology, listed=0)
    assert plan.matmul.sum_dtype == "int64"
