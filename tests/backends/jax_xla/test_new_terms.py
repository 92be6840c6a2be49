"""Axes that are unreduced in the target only: one holder has the value, the others none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from lone import alone
from programs import SELF_CHECKS, output, started
from running import reports_of, verified
from simulate import check as check_plan
from strategies import exactly, message
from sums import OPERATORS, ids_differ, pairs_with_terms, placed
from sweeps import sampled
from test_xla_steps import check, make, of_steps

import shardwright as sw
from shardwright.codegen.backends.jax_steps.plan import steps_of
from shardwright.codegen.checks.case import placement
from shardwright.codegen.checks.oracle import sums as oracle_terms
from shardwright.codegen.moves import plan
from shardwright.codegen.operations.emit.modules import backward_of, parts
from shardwright.codegen.operations.verify import Case
from shardwright.ir import Mesh, Reshard
from shardwright.ir.dtypes import DTYPES
from shardwright.ir.plan import Plan

GRID = Mesh({"x": 2, "y": 4})


def plans_of(reshards: list[Reshard]) -> list[Plan]:
    """By both strategies, where they can."""
    return [plan(r, "direct") for r in reshards if not r.adds] + of_steps(reshards)


def test_plans_of_new_terms() -> None:
    """Every step of a plan's JSON, carried out, by both strategies."""
    reshards = [replace(reshard, dtype="int64") for reshard in placed(range(60))]
    made = plans_of(reshards)
    assert len({each.ops for each in made}) > 6
    for each in made:
        check_plan(each)


@pytest.mark.exhaustive
def test_new_terms_of_random_reshards(tmp_path: Path) -> None:
    check(plans_of(placed(range(24))), tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("half", range(2))
def test_more_new_terms_of_random_reshards(half: int, tmp_path: Path) -> None:
    check(plans_of(placed(range(200 + half, 400, 2))), tmp_path)


@pytest.mark.exhaustive
def test_pairs_with_new_terms(tmp_path: Path) -> None:
    check(plans_of(pairs_with_terms()[::5]), tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("operator", OPERATORS)
def test_all_pairs_with_new_terms(operator: str, tmp_path: Path) -> None:
    pairs = pairs_with_terms()
    assert len(pairs) == 37
    sides = [
        replace(
            pair,
            source=replace(pair.source, operator=operator),
            target=replace(pair.target, operator=operator),
        )
        for pair in pairs
    ]
    check(plans_of(sides), tmp_path)


@pytest.mark.parametrize("operator", sampled(["min", "max"], "min"))
def test_new_extrema_of_every_integer(operator: str, tmp_path: Path) -> None:
    """Terms without a value have the end of the dtype, which Python's integers in JAX may not
    reach."""
    dtypes = [dtype for dtype in DTYPES if dtype.startswith(("int", "uint"))]
    target = f'[{{}}, {{}}], unreduced={operator}{{"x"}}'
    check(plans_of([make("[{}, {}]", target, (4, 6), dtype) for dtype in dtypes]), tmp_path)


def test_which_terms_have_a_value() -> None:
    """The sum over terms is the tensor, and exactly one holder has it."""
    given = placement(GRID.sharding('[{}], unreduced={"y":(1)2}'), "flat")
    for text, expected in (
        ('[{}], unreduced={"x"}', ((0, 1), ())),
        ('[{}], unreduced={"y"}', ((0,), (), (1,), ())),
        ('[{}], unreduced={"x", "y":(1)2}', ((0,), (1,), (), ())),
        ('[{}], unreduced={"y":(2)2}', ((0, 1), ())),
    ):
        target = placement(GRID.sharding(text), "flat")
        assert oracle_terms.terms_of_target(given, target) == expected


def test_devices_receive_what_they_lack() -> None:
    """One holder gathers, the others receive nothing; transposed, they give nothing."""
    made = plan(make('[{"y"}, {}]', '[{}, {}], unreduced={"y"}', (16, 8), "int8"))
    traffic = made.traffic
    assert (made.strategy, traffic.received_max, traffic.received_total) == ("direct", 96, 192)
    assert (traffic.bound_received_max, traffic.bound_sent_max) == (96, 32)
    assert steps_of(made).wire == (96, 192)
    back = backward_of(plan(replace(made.reshard, dtype="float32")), "jax_xla", gradient=True)
    assert back is not None
    assert back.reshard.transposed
    assert back.traffic.received_total == 4 * 2 * 3 * 32
    assert (back.traffic.sent_max, back.traffic.bound_sent_max) == (4 * 96, 4 * 96)


def test_lines_of_new_terms() -> None:
    """In place a choice, else boxes; bits of the lowest value; both said."""
    made = plan(make("[{}, {}]", '[{}, {}], unreduced=max{"y"}'))
    small = plan(replace(made.reshard, dtype="bfloat16"))
    (own,) = parts(small, "jax_xla", "c", gradient=True, single_file=True)
    assert 'y = jnp.where(lax.axis_index("y") == 0, x, EMPTY)' in own.text
    assert "EMPTY = bits_from(-jnp.inf, DTYPE)" in own.text
    (own,) = parts(made, "jax_xla", "c", gradient=True, single_file=True)
    assert 'y = jnp.where(lax.axis_index("y") == 0, x, -jnp.inf)' in own.text
    assert 'Along "y" the' in own.text
    assert "every other term the lowest value." in own.text.replace("\n", " ")
    made = plan(make('[{"x"}, {}]', '[{}, {}], unreduced={"x"}'), "basis")
    own, back = parts(made, "jax_xla", "c", gradient=True, single_file=True)
    assert made.ops == "all_gather, replicated_to_unreduced"
    assert "the term of coordinate 0 is read" in back.text


def test_bundles_with_derivatives(tmp_path: Path) -> None:
    """A value becomes a term, beside sums and kept terms: cotangents are those of that term."""
    pytest.importorskip("jax")
    reshards = (
        make('[{}, {}], unreduced={"y":(1)2}', '[{"x"}, {}], unreduced={"y"}', (4, 3), "float16"),
    )
    for number, reshard in enumerate(reshards):
        sw.emit(reshard, backends=("jax_xla",), gradient=True).write(tmp_path / f"new{number}")
    for report in verified(tmp_path):
        assert (report.verdict, report.detail) == ("ok", ""), report.name
        assert {"derivative", "backward"} <= set(report.checks)


def test_copies_and_values_are_two_things(tmp_path: Path) -> None:
    """The module of a sum's derivative is wrong where one holder has a value, and the other way."""
    summed = plan(make('[{}, {}], unreduced={"x"}', "[{}, {}]"))
    new = plan(make("[{}, {}]", '[{}, {}], unreduced={"x"}'))
    _, back = parts(summed, "jax_xla", "c", gradient=True, single_file=True)
    own, _ = parts(new, "jax_xla", "c", gradient=True, single_file=True)
    assert str(back.plan.reshard.target) == str(new.reshard.target)
    cases = []
    for name, part in (("back", back), ("own", own)):
        path = tmp_path / f"{name}.py"
        path.write_text(part.text)
        for transposed in (False, True):
            case = Case.of(new.reshard, f"{name} {transposed}", "jax_xla", path)
            cases.append(replace(case, transposed=transposed))
    verdicts = [report.verdict for report in reports_of("jax_xla", cases)]
    assert verdicts == ["failed", "ok", "ok", "failed"]


def test_self_checks(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    paths = []
    for number, (source, target) in enumerate(
        (
            ('[{"x"}, {}], unreduced=max{"y"}', '[{}, {}], unreduced=min{"x"}'),
            ('[{"x"}, {}], unreduced={"y":(1)2}', '[{}, {}], unreduced={"y"}'),
        )
    ):
        made = plan(make(source, target, (5, 6)))
        for part in parts(made, "jax_xla", "c", gradient=True, single_file=True):
            (tmp_path / str(number)).mkdir(exist_ok=True)
            paths.append(tmp_path / str(number) / part.file)
            paths[-1].write_text(part.text)
    said = output(started(SELF_CHECKS, 8, *paths)).splitlines()
    moved = "shards tile the tensor; 30 elements moved, every target shard right"
    assert said == [moved] * 3


def test_a_wrong_holder_is_found(tmp_path: Path) -> None:
    """Planted: the value on another holder, on all, on none, and zero for the lowest value."""
    made = plan(make("[{}, {}]", '[{}, {}], unreduced=max{"y"}'))
    (own,) = parts(made, "jax_xla", "c", gradient=True, single_file=True)
    line = 'y = jnp.where(lax.axis_index("y") == 0, x, -jnp.inf)'
    faults = (
        line.replace("== 0", "== 1"),
        "y = x",
        "y = jnp.full_like(x, -jnp.inf)",
        line.replace("-jnp.inf", "0"),
    )
    cases = []
    for number, wrong in enumerate(faults):
        path = tmp_path / f"fault{number}.py"
        path.write_text(own.text.replace(line, wrong))
        cases.append(Case.of(made.reshard, wrong, "jax_xla", path))
    assert [report.verdict for report in reports_of("jax_xla", cases)] == ["failed"] * 4


def test_booleans_are_no_terms_of_a_sum() -> None:
    target = '[{}, {}], unreduced={"y"}'
    assert message(lambda: make("[{}, {}]", target, dtype="bool")) == exactly(
        """
        dtype: the dtype of partial sums must support addition, which booleans do not
        got: bool
        expected: an integer or a floating dtype, such as int8; or unreduced=max{…}
        """
    )


def test_sub_axes_that_cannot_coexist() -> None:
    mesh = Mesh({"x": 6})
    source, target = (mesh.sharding(f'[{{}}], unreduced={{"x":(1){k}}}') for k in (2, 3))
    assert message(lambda: Reshard((8,), "int8", source, target)) == exactly(
        """
        target: unreduced sub-axes of both sides must fit one factorization of their axis
        got: "x":(1)2 in source, "x":(1)3 in target, of "x"=6
        expected: each border a multiple of the previous border
        """
    )


def test_new_terms_on_other_devices() -> None:
    source, target = Mesh({"y": 2}), Mesh({"y": 2}, [2, 3])
    reshard = Reshard(
        (8,), "int8", source.sharding("[{}]"), target.sharding('[{}], unreduced={"y"}')
    )
    assert ids_differ(reshard)
    assert message(lambda: sw.emit(reshard, backends=("jax_xla",))) == exactly(
        """
        target_mesh: jax_xla can reduce partial sums only within one set of devices
        got: <["y"=2], device_ids=[2, 3]>
        expected: the devices of the source, in any order
        """
    )


def test_another_operator_for_new_axes() -> None:
    """A maximum becomes a term of a minimum: nothing is kept that had another operator."""
    reshard = make('[{}, {}], unreduced=max{"x"}', '[{}, {}], unreduced=min{"y"}', dtype="int32")
    made = plan(reshard)
    assert made.ops == "all_reduce, replicated_to_unreduced"
    text = alone(made, "jax_xla")
    assert 'jnp.where(lax.axis_index("y") == 0, x, jnp.iinfo(DTYPE).max)' in text
    rows = [row for step in made.to_dict()["steps"] for row in step["transfers"]]
    assert {row.get("reduce") for row in rows} == {"max", None}
    assert np.all([row["from"] == row["to"] for row in made.to_dict()["steps"][1]["transfers"]])
