"""Intermediate values with a split dimension that does not divide: its axes split another one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import pytest
import spilled
from programs import findings

import shardwright as sw
from shardwright.codegen.partition import planned
from shardwright.codegen.partition.local import shardy
from shardwright.codegen.partition.local.axes import cut_axes

CASES = {case.name: case for case in spilled.cases()}


@pytest.mark.parametrize("name", CASES)
def test_axes_that_do_not_divide_split_another_dimension(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If they are not padded. `cheapest` receives no more; without such layouts, dimensions are
    whole."""
    case = CASES[name]
    found = spilled.partitioned(case, "as_shardy").bytes_received
    assert found == case.padded
    assert spilled.partitioned(case, "cheapest").bytes_received <= found
    monkeypatch.setattr(planned, "with_padded_ends", lambda program: program)
    found = spilled.partitioned(case, "as_shardy").bytes_received
    assert found == case.spilled
    assert spilled.partitioned(case, "cheapest").bytes_received <= found
    every = shardy.propagated_layouts

    def first(*given: Any) -> Iterator[Any]:
        yield next(every(*given))

    monkeypatch.setattr(shardy, "propagated_layouts", first)
    assert spilled.partitioned(case, "as_shardy").bytes_received == case.whole


def test_a_result_that_is_whole_is_gathered_once() -> None:
    """Another dimension would have to be gathered as well, so the plan is the one without."""
    aval = jax.ShapeDtypeStruct((64, 16), "float32")
    sides = {"in_shardings": spilled.ROWS, "out_shardings": "[{}, {}]"}
    program = sw.partition(lambda x: x[1:], aval, mesh=sw.Mesh(spilled.MESH), **sides)
    assert program.bytes_received == 64 * 16 * 4 * 7 // 8


@pytest.mark.parametrize(
    ("shape", "given", "layout"),
    [
        ((8, 12), '[{"x"}, {"y"}]', '[{"x"}, {"y"}]'),
        ((7, 12), '[{"x"}, {"y"}]', '[{}, {"y", "x"}]'),
        ((7, 9), '[{"x"}, {"y"}]', '[{}, {"y"}]'),
        ((8, 7), '[{"x"}, {"y", "z"}]', '[{"x"}, {}]'),
        ((6, 6, 4), '[{"x", "z"}, {"y"}, {}]', '[{"x"}, {"y"}, {"z"}]'),
        ((5, 24), '[{"x", "y"}, {}]', '[{}, {"x", "y"}]'),
    ],
)
def test_the_first_other_dimension_takes_axes(
    shape: tuple[int, ...], given: str, layout: str
) -> None:
    """All that are lost of a dimension, or none."""
    mesh = sw.Mesh({"x": 2, "y": 3, "z": 4})
    aval = jax.ShapeDtypeStruct((), "float32")
    axes = cut_axes(sw.partition(lambda x: x, aval, mesh=mesh).program, mesh)
    assert str(axes.spilled(mesh.sharding(given), shape)) == layout


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["as_shardy", "cheapest"])
def test_values_are_those_of_one_device(mode: str) -> None:
    assert findings("spilled.py", mode)["wrong"] == {}
