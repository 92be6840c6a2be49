"""Collectives by name: the notation of the seeds, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from strategies import exactly, message

import shardwright as sw
from shardwright.ir.axes import AxisRef
from shardwright.ir.reshard import Reshard

MESH = sw.Mesh({"X": 4, "Y": 2})


def of(source: str, shape: tuple[int, ...] = (8, 6)) -> tuple:
    return shape, "float32", MESH.sharding(source)


NAMED: dict[str, tuple[Reshard, str]] = {
    "A[I_X, J] -> A[I, J]": (sw.all_gather(*of('[{"X"}, {}]'), "X"), "[{}, {}]"),
    "A[I_XY, J] -> A[I_X, J]": (sw.all_gather(*of('[{"X", "Y"}, {}]'), "Y"), '[{"X"}, {}]'),
    "A[I_XY, J] -> A[I, J]": (sw.all_gather(*of('[{"X", "Y"}, {}]'), ("X", "Y")), "[{}, {}]"),
    "half of X": (
        sw.all_gather(*of('[{"X"}, {}]'), AxisRef("X", 2, 2)),
        '[{"X":(1)2}, {}]',
    ),
    "A[I, J] {U_X} -> A[I_X, J]": (
        sw.reduce_scatter(*of('[{}, {}], unreduced={"X"}'), "X"),
        '[{"X"}, {}]',
    ),
    "A[I, J] {U_X} -> A[I, J_X]": (
        sw.reduce_scatter(*of('[{}, {}], unreduced={"X"}'), "X", dim=1),
        '[{}, {"X"}]',
    ),
    "A[I_Y, J] {U_X} -> A[I_Y, J]": (
        sw.all_reduce(*of('[{"Y"}, {}], unreduced={"X"}'), "X"),
        '[{"Y"}, {}]',
    ),
    "A[I, J] {U_XY} -> A[I, J] {U_Y}": (
        sw.all_reduce(*of('[{}, {}], unreduced=max{"X", "Y"}'), "X"),
        '[{}, {}], unreduced=max{"Y"}',
    ),
    "A[I_X, J] -> A[I, J_X]": (sw.all_to_all(*of('[{"X"}, {}]'), "X", dim=1), '[{}, {"X"}]'),
    "A[I_X, J_Y] -> A[I, J_YX]": (
        sw.all_to_all(*of('[{"X"}, {"Y"}]'), "X", dim=1),
        '[{}, {"Y", "X"}]',
    ),
    "A[I_X, J] -> A[I_XY, J]": (sw.slice(*of('[{"X"}, {}]'), "Y"), '[{"X", "Y"}, {}]'),
}


@pytest.mark.parametrize("name", NAMED)
def test_named(name: str) -> None:
    reshard, target = NAMED[name]
    assert str(reshard.target) == target


def test_what_is_not_tiled_has_a_dimension_for_the_devices() -> None:
    stacked = sw.all_gather(*of('[{"X"}, {"Y"}]'), "X", tiled=False, dim=1)
    assert stacked.shape == (2, 4, 6)
    assert (str(stacked.source), str(stacked.target)) == ('[{}, {"X"}, {"Y"}]', '[{}, {}, {"Y"}]')


def test_a_permutation_is_the_same_sharding_on_devices_in_another_order() -> None:
    around = [(i, (i + 1) % 4) for i in range(4)]
    moved = sw.permute(*of('[{"X"}, {}]'), "X", pairs=around)
    assert tuple(moved.target.mesh.device_ids) == (2, 3, 4, 5, 6, 7, 0, 1)
    assert str(moved.source) == str(moved.target)


REFUSED: tuple[tuple[Callable[[], object], str], ...] = (
    (
        lambda: sw.all_gather(*of('[{"X", "Y"}, {}]'), "X"),
        """
        axes: the axes must be the last axes of a dimension
        got: "X", for [{"X", "Y"}, {}]
        expected: "y", or "x" and "y", if a dimension has {"x", "y"}
        """,
    ),
    (
        lambda: sw.all_gather(*of('[{"X"}, {}]', (7, 6)), "X", tiled=False),
        """
        source: without `tiled`, the given axes alone must split their dimension, into equal shards
        got: [{"X"}, {}], 7 elements over 4 devices
        expected: a multiple of 4 elements, split by these axes alone; or tiled
        """,
    ),
    (
        lambda: sw.all_gather(*of('[{"X"}, {}]'), ()),
        """
        axes: at least one axis is needed
        got: none
        expected: ["x"]
        """,
    ),
    (
        lambda: sw.all_reduce(*of('[{"X"}, {}]'), "X"),
        """
        axes: the axes to reduce must be unreduced in the source
        got: "X", for [{"X"}, {}]
        expected: axes that the source lists in unreduced={…}
        """,
    ),
    (
        lambda: sw.reduce_scatter(*of('[{}, {}], unreduced={"X"}'), "X", tiled=False),
        """
        shape: without `tiled` the dimension must have one element for each device along the axes
        got: 8 elements for 4 devices
        expected: 4 elements, or tiled
        """,
    ),
    (
        lambda: sw.reduce_scatter(*of('[{}, {}], unreduced={"X"}'), "X", dim=2),
        """
        dim: no such dimension
        got: 2
        expected: one of 0, 1
        """,
    ),
    (
        lambda: sw.all_to_all(*of('[{"X"}, {}]'), "X", dim=0),
        """
        dim: an all-to-all must move axes between two different dimensions
        got: 0, the dimension that the axes already split
        expected: a different dimension
        """,
    ),
    (
        lambda: sw.slice(*of('[{"X"}, {}]'), "X"),
        """
        axes: an axis or sub-axis may be used only once
        got: "X" twice in dimension 0
        expected: "X" in one place only
        """,
    ),
    (
        lambda: sw.permute(*of('[{"X"}, {}]'), "X", pairs=[(0, 1), (1, 0)]),
        """
        pairs: each coordinate must send once and receive once
        got: [(0, 1), (1, 0)]
        expected: each of 0 to 3 once as sender (i) and once as receiver (j)
        """,
    ),
)


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_refused(number: int) -> None:
    call, expected = REFUSED[number]
    assert message(call) == exactly(expected)
