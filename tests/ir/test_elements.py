"""Single elements against the intervals of the definition."""

from __future__ import annotations

import itertools

import pytest
from elements import element_at, holders_of
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import exactly, held_by, meshes, message, shardings

from shardwright.ir import Mesh, Sharding
from shardwright.ir.layout import Layout


@st.composite
def cases(draw: st.DrawFn) -> tuple[Sharding, tuple[int, ...]]:
    mesh = draw(meshes(most_devices=12))
    sharding = draw(shardings(mesh, draw(st.integers(0, 2))))
    return sharding, tuple(draw(st.integers(1, 7)) for _ in sharding.dims)


@given(cases())
@settings(max_examples=3, deadline=None)
def test_holders_are_the_devices_whose_intervals_have_the_element(
    case: tuple[Sharding, tuple[int, ...]],
) -> None:
    check_holders(*case)


@pytest.mark.slow
@given(cases())
@settings(max_examples=10, deadline=None)
def test_so_they_are_of_more(case: tuple[Sharding, tuple[int, ...]]) -> None:
    check_holders(*case)


def check_holders(sharding: Sharding, shape: tuple[int, ...]) -> None:
    """Of every element the positions whose intervals have it, and the local index there."""
    layout, held = Layout.of(sharding, shape, "flat"), held_by(sharding, shape)
    for element in itertools.product(*map(range, shape)):
        positions, local = holders_of(layout, element)
        assert positions == tuple(
            position
            for position, device in enumerate(sharding.mesh.device_ids)
            if all(low <= i < high for i, (low, high) in zip(element, held[device], strict=True))
        )
        for position in positions:
            assert element_at(layout, position, local) == element


def test_nested_split() -> None:
    layout = Layout.of(Mesh({"x": 2, "y": 2}).sharding('[{"x", "y"}]'), (5,), "nested")
    assert [holders_of(layout, (i,)) for i in range(5)] == [
        *(((0,), (0,)), ((0,), (1,)), ((1,), (0,)), ((2,), (0,)), ((3,), (0,)))
    ]


def test_outside() -> None:
    layout = Layout.of(Mesh({"x": 2}).sharding('[{"x"}]'), (5,), "flat")
    assert message(lambda: holders_of(layout, (5,))) == exactly("""
        element: an element must be in the tensor
        got: [5]
        expected: each index below its extent, [5]
        """)
    assert message(lambda: holders_of(layout, (0, 0))) == exactly("""
        element: an element must be in the tensor
        got: [0, 0]
        expected: each index below its extent, [5]
        """)
    assert message(lambda: element_at(layout, -1, (0,))) == exactly("""
        position: a position must be in the mesh
        got: -1
        expected: 0 to 1
        """)
    assert message(lambda: element_at(layout, 1, (2,))) == exactly("""
        local: a local index must be in its shard
        got: [2]
        expected: each index below its extent, [2]
        """)
