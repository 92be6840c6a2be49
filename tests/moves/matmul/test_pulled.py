"""Kernels that pull parts and push sums: what they are priced at, and where they are taken."""

from __future__ import annotations

import random

import numpy as np
import pytest
from matmuls import random_matmul
from sweeps import slow

import shardwright as sw
from shardwright.codegen.backends.matmul_facts import layout_of
from shardwright.codegen.backends.triton_gpu.matmul.context import DTYPES
from shardwright.codegen.backends.triton_gpu.matmul.kernel import MatmulKernels
from shardwright.codegen.backends.triton_gpu.matmul.tiles import tiles_of
from shardwright.codegen.moves.matmul.plan import plan_matmul
from shardwright.codegen.moves.matmul.pulled import flows_of
from shardwright.codegen.show.matmul import matmul_text
from shardwright.ir.matmul import SIDES

EIGHT = sw.Mesh({"i": 8})
ROWS = '[{"i"}, {}]', '[{}, {"i"}]', '[{}, {"i"}]'
SUMS = '[{}, {"i"}]', '[{"i"}, {}]', '[{"i"}, {}]'


def square(size: int, shardings: tuple[str, str, str], mesh: sw.Mesh = EIGHT) -> sw.Matmul:
    lhs, rhs, out = shardings
    return sw.Matmul("bf16", ((size, size), lhs), ((size, size), rhs), out, mesh=mesh)


@pytest.mark.parametrize("shardings", [ROWS, SUMS], ids=["rows", "sums"])
def test_a_large_matmul_takes_a_kernel_that_says_by_how_much(
    shardings: tuple[str, str, str],
) -> None:
    given = square(8192, shardings)
    plan = sw.plan(given, topology="h100:8", loop="pulled")
    cost = plan.chosen.cost
    assert plan.chosen.pulled
    assert cost.seconds < 0.95 * cost.apart
    # Not less than links take, nor than the product; not more than one after the other.
    assert max(cost.multiplying, cost.received_max / 450e9) < cost.seconds
    assert cost.seconds < cost.multiplying + sum(cost.moving)
    (plain,) = (each for each in plan.others if each.multiplication == plan.chosen.multiplication)
    assert (plain.pulled, plain.cost.seconds) == (False, cost.apart)
    text = matmul_text(plan)
    less = f"{1 - cost.seconds / cost.apart:.0%} less than the {cost.apart:.3g} s of moving first"
    assert f"A kernel that exchanges parts meanwhile takes {cost.seconds:.3g} s, {less}" in text
    assert "while a kernel exchanges parts" in text
    chosen, apart = plan.to_dict()["chosen"], float(f"{cost.apart:.6g}")
    assert (chosen["pulled"], chosen["apart_seconds"]) == (True, apart)


def test_a_small_one_moves_first_and_the_module_does_too() -> None:
    for size, overlaps in ((16, False), (8192, True)):
        plan = sw.plan(square(size, ROWS), topology="h100:8", loop="pulled")
        assert plan.chosen.pulled == overlaps
        text = sw.emit(plan, backends=("triton_gpu",)).modules("as a test")["triton_gpu.py"]
        assert ("overlap=False" in text) != overlaps


TRITON, XLA = ("triton_gpu",), ("jax_xla",)
FIRST = "it moves first and then multiplies, in {} predicted seconds."


@pytest.mark.parametrize("size", [16, 8192])
def test_auto_chooses_among_the_loops_that_all_backends_execute(size: int) -> None:
    """For each set of backends the first row of the page is the module's, and the fastest."""
    given = square(size, ROWS)
    for backends in (TRITON, XLA, XLA + TRITON):
        plan = sw.plan(given, topology="h100:8", backends=backends)
        assert sw.emit(given, backends, topology="h100:8").plan == plan
        # A plan for other backends is made again, by which `emit` of the manifest emits the same.
        assert sw.emit(sw.plan(given, topology="h100:8"), backends).plan == plan
        assert plan.chosen.pulled == (size == 8192 and backends == TRITON)
        assert (plan.chosen.loop is not None) == (size == 8192 and backends == XLA)
        files = sw.emit(plan, backends).files("m")
        page = " ".join(files["README.md"].split())
        assert FIRST.split(" in ")[0] not in page
        assert "A kernel exchanges parts while" not in page
        rivals = [each for each in plan.others if plan.may_pull or not each.pulled]
        assert all(plan.chosen.cost.seconds <= each.cost.seconds for each in rivals)
        if "triton_gpu" in backends:
            assert ("overlap=False" in files["triton_gpu.py"]) != plan.chosen.pulled
    alike = [
        sw.emit(given, TRITON, topology="h100:8", loop=loop).modules("as a test")
        for loop in ("auto", "pulled")
    ]
    assert alike[0] == alike[1]


def test_a_page_says_what_a_module_does_instead_of_the_first_row() -> None:
    given = square(8192, ROWS)
    for backends, topology, loop, told in (
        (XLA, "h100:8", "pulled", FIRST),
        (TRITON, "h100:8", "both", "in place of rings, in {} predicted seconds."),
        (TRITON, None, "both", "in place of rings."),
        (TRITON, None, "auto", 'unless you ask for loop="never".'),
    ):
        bundle = sw.emit(given, backends, topology=topology, loop=loop)
        files = bundle.files("m")
        (same,) = [
            f"{each.cost.seconds:.3g}"
            for each in bundle.plan.others
            if each.multiplication == bundle.plan.chosen.multiplication
        ] or [""]
        assert told.format(same) in " ".join(files["README.md"].split())
        assert "overlap=False" not in files.get("triton_gpu.py", "")


def test_cotangents_are_planned_for_the_same_backends() -> None:
    for backends, pulls in ((TRITON, True), (XLA, False)):
        bundle = sw.emit(square(8192, ROWS), backends, topology="h100:8", gradient=True)
        assert {each.among for each in bundle.backward} == {bundle.plan.among}
        assert any(each.chosen.pulled for each in bundle.backward) == pulls
        assert all(each.chosen.loop is None for each in bundle.backward) or not pulls


def test_it_is_listed_wherever_devices_read_each_others_memory() -> None:
    whole, half = square(8192, ROWS), square(8192, ROWS, sw.Mesh({"i": 4}))
    for given, topology, listed in (
        (whole, "h100:8", True),
        (half, "h100:2x4", True),
        (whole, "h100:2x4", False),
        (whole, "v5e:2x4", False),
        (whole, "cpu:8", False),
        (whole, None, False),
    ):
        plan = sw.plan(given, topology=topology)
        assert any(each.pulled for each in plan.others) == listed, topology
        assert not plan.chosen.pulled
        if not listed:
            with pytest.raises(sw.InputError, match="read each other's memory"):
                sw.plan(given, topology=topology, loop="pulled")


@pytest.mark.parametrize("seed", [*range(8), *slow(8, 24)])
def test_bytes_are_those_of_the_module(seed: int) -> None:
    """By other code: who takes what from whom, and what modules say comes to the busiest device."""
    given = random_matmul(random.Random(seed), dtypes=DTYPES)
    product = plan_matmul(given, "h100", listed=0).chosen.multiplication
    layouts = {side: layout_of(given, side) for side in SIDES}
    comes = np.zeros(given.mesh.size)
    for side in SIDES:
        flows = flows_of(product, side)
        assert (flows.sender != flows.receiver).all()
        comes += np.bincount(flows.receiver, flows.weight, given.mesh.size)
    assert comes.max() == sum(
        MatmulKernels(product, layouts, tiles_of(product, layouts)).received()
    )
