"""Sums over devices of values that are added: one all-reduce of the total, in both modes."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import late_sums
import program_patterns
import pytest
from programs import findings
from sweeps import sampled

import shardwright as sw
from shardwright.codegen.partition.local import shardy

MODES = ("as_shardy", "cheapest")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("mesh", late_sums.MESHES)
def test_a_global_norm_is_one_all_reduce(mesh: Mapping[str, int], mode: str) -> None:
    """Over the axes of both dimensions, of 3, 7 and 12 leaves with different shardings."""
    for count in (3, 7, 12):
        fn, ways = late_sums.case(late_sums.norm(count), random.Random(count))
        ways = ('[{"x"}, {"y"}]', *ways[1:])
        (only,) = late_sums.partitioned(fn, ways, mesh, mode).communications
        devices = mesh["x"] * mesh["y"]
        assert (only.op, only.axes) == ("all_reduce", ("x", "y"))
        assert only.bytes == 2 * 4 * (devices - 1) // devices


@pytest.mark.parametrize("seed", sampled(range(4), 0))
def test_random_trees_are_at_the_least_of_all_choices(seed: int) -> None:
    for root, fn, ways, mesh in itertools.islice(late_sums.trees(seed), 40):
        least = late_sums.least(root, ways, mesh)
        program = late_sums.partitioned(fn, ways, mesh, "as_shardy")
        found = program.bytes_received + sum(each.values for each in program.communications)
        assert found == least, (root, ways, mesh, str(program.local))


def test_values_are_those_of_one_device() -> None:
    assert findings("late_sums.py", "7", "2")["wrong"] == {}


@pytest.mark.slow
def test_values_of_many_trees_are_those_of_one_device() -> None:
    """A whole value that every device adds, instead of one, is found."""
    found = findings("late_sums.py", "8", "40")
    assert found["wrong"] == {}
    assert found["planted"] > 0.5


def test_sums_of_tensors_are_reduced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two products that meet in a sum; without late sums, each is reduced."""
    for each in program_patterns.patterns():
        if each.name in ("a parallel block", "a delayed sum"):
            late = _of_pattern(each)
            assert len(late.communications) == 1
            assert late.bytes_received == each.known
            monkeypatch.setattr(shardy, "with_late_sums", lambda *given: given[2:])
            assert _of_pattern(each).bytes_received == 2 * each.known
            monkeypatch.undo()


def _of_pattern(each: Any) -> Any:
    sides = {"in_shardings": each.inputs, "out_shardings": each.output}
    return sw.partition(each.fn, *each.avals, mesh=each.mesh, **sides)


def test_a_sum_with_another_use_is_reduced_at_once() -> None:
    """A partial sum with two uses would be reduced for each; a square may not have one. The sum in
    both means is the same as `a`."""

    def fn(x: Any, y: Any) -> Any:
        a, b = x.sum(), y.sum()
        return a + b, jnp.sqrt(a), x.mean() * x.mean()

    program = sw.partition(
        fn,
        *[late_sums.AVAL] * 2,
        mesh=sw.Mesh({"x": 8}),
        in_shardings='[{"x"}, {}]',
        out_shardings="[]",
    )
    assert [each.called for each in program.communications] == ["all-reduce of 2 values"]


def test_the_reason_names_the_axes() -> None:
    fn, ways = late_sums.case(late_sums.norm(3), random.Random(0))
    program = late_sums.partitioned(
        fn, ('[{"x"}, {"y"}]', *ways[1:]), {"x": 2, "y": 4}, "as_shardy"
    )
    (only,) = program.communications
    assert only.reason == 'the result of add is a partial sum over "x", "y" and must be []'


def test_a_weight_is_no_term_of_the_reduction_of_its_update() -> None:
    """At equal bytes the update is reduced first: a reduction rounds at the size of its sum."""

    def step(weight: Any, x: Any) -> Any:
        return weight - 2.0**-26 * jax.grad(lambda w: (x @ w).sum())(weight)

    program = sw.partition(
        step,
        jax.ShapeDtypeStruct((8, 4), jnp.float32),
        jax.ShapeDtypeStruct((64, 8), jnp.float32),
        mesh=sw.Mesh({"data": 8}),
        in_shardings=("P()", "P('data')"),
        out_shardings="P()",
        mode="cheapest",
    )
    (only,) = program.communications
    assert (only.op, only.bytes) == ("all_reduce", 224)
    assert "axis_index" not in sw.emit(program).files("step")["jax_spmd.py"]
