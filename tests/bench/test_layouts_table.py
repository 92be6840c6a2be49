"""Layers as three stores have them, and the table of what moves between them."""

from __future__ import annotations

from pathlib import Path

import pytest
from sweeps import kept

import shardwright as sw
from bench.layers import RECIPES, STORES
from bench.layouts import RESULT, SERVERS, least, measured, one_axis_tensors, same_bytes
from shardwright.codegen.checks.relayout_case import RelayoutCase


def test_the_table_is_of_all_cells() -> None:
    rows = [line.strip("| ").split(" | ") for line in RESULT.read_text().splitlines()]
    cells = [row for row in rows if len(row) == 2 + len(SERVERS)][1:]
    assert [row[0] for row in cells] == [r.model for r in RECIPES.values() for _ in STORES]
    assert "180 of 180 cells are at the bound" in RESULT.read_text()


@pytest.mark.parametrize("name", kept(RECIPES, "Qwen 3 MoE"))
def test_its_cells_are_right(name: str) -> None:
    recipe = RECIPES[name]
    rows = [
        line for line in RESULT.read_text().splitlines() if line.startswith(f"| {recipe.model}")
    ]
    for by, row in zip(STORES, rows, strict=True):
        cells = [measured(recipe, by, devices) for devices in SERVERS]
        assert all(cell.received == cell.least for cell in cells)
        assert row.strip("| ").split(" | ")[2:] == [*map(str, cells)]


@pytest.mark.parametrize("name", kept(RECIPES, "Phi 3", "GPT-OSS"))
def test_least_bytes_are_those_of_the_oracle(name: str) -> None:
    """Of a small layer, by the sets of elements that devices have."""
    recipe = RECIPES[name]
    small = recipe.sizes.small()
    target = recipe.stored("vllm", 4, small)
    for by in STORES:
        source = recipe.stored(by, 8, small)
        case = RelayoutCase.of(sw.Relayout(source, target), "it", "jax_xla", Path("it"))
        assert max(least(source, target).values()) == case.received()


def test_what_simpler_systems_move() -> None:
    tensors = {"a": (8, 4), "b": (8, 4)}
    apart = sw.Stored("x=4", tensors, {"a": "a[{x}]", "b": "b[{}, {x}]"}, "int8")
    packed = sw.Stored("x=4", tensors, sw.stack(0, a="x", b="x"), "int8")
    halves = sw.Stored(
        "x=4", tensors, {"a": 'a[{"x":(1)2}]', "b": "b '(i j=2) c -> j i c'"}, "int8"
    )
    found = [one_axis_tensors(each) for each in (apart, packed, halves)]
    assert found == [{"a", "b"}, set(), set()]
    assert same_bytes(apart, packed) == set()
    assert same_bytes(packed, apart) == {(device, "a") for device in range(4)}
    assert same_bytes(packed, packed) == {(device, "buffer") for device in range(4)}
