"""How few passes over the memory of a shard a module of plain JAX takes."""

from __future__ import annotations

import itertools
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from lone import write_bundle

from shardwright.codegen.backends.jax_xla import context as jax_xla
from shardwright.codegen.backends.jax_xla.groups import Groups
from shardwright.codegen.checks.load import load
from shardwright.codegen.moves import plan
from shardwright.codegen.operations.emit.modules import parts
from shardwright.ir import Mesh, Reshard

CUBE = Mesh({"x": 2, "y": 2, "z": 2})


def of_cube(shape: tuple[int, ...], source: str, target: str) -> Reshard:
    return Reshard(shape, "float32", CUBE.sharding(source), CUBE.sharding(target))


def test_zeros_are_written_where_a_shard_may_end(tmp_path: Path) -> None:
    """Not one choice is made over a whole shard, and padding is zero all the same."""
    jax = pytest.importorskip("jax")
    made = plan(of_cube((5, 43, 61), '[{}, {"x"}, {"z"}]', '[{}, {"x", "z"}, {"y"}]'))
    module = load(write_bundle(made, "jax_xla", tmp_path / "ends"))
    support = module.Padding.__module__.replace("jax_padding", "jax_zeros")
    zeroed, target = import_module(support).zeroed, module._HOST.target
    y = np.ones((5, 11, 31), np.float32)
    for extent in itertools.product((5,), (10, 11), (30, 31)):
        expected = np.zeros_like(y)
        expected[tuple(map(slice, extent))] = 1
        np.testing.assert_array_equal(zeroed(y, target, (1, 2), extent), expected)
    listed = jax.make_jaxpr(lambda y: zeroed(y, target, (1, 2), (5, 10, 30)))(y).eqns
    chosen = [each.outvars[0].aval.shape for each in listed if "select" in str(each)]
    assert sorted(chosen) == [(5, 1, 31), (5, 11, 1)]


def test_padding_that_a_module_makes_is_not_made_zero() -> None:
    """A whole dimension is padded with zeros before it is cut."""
    whole = of_cube((5, 7, 11), "[{}, {}, {}]", '[{}, {"x", "z"}, {"y"}]')
    split = of_cube((5, 7, 11), '[{}, {"x"}, {}]', '[{}, {"x", "z"}, {"y"}]')
    texts = [parts(plan(r), "jax_xla", "c", single_file=True)[0].text for r in (whole, split)]
    assert "    y = zeroed" not in texts[0]
    assert "    y = zeroed_everywhere(y, (1,), extent)" in texts[1]


def test_one_collective_stands_for_many_rounds() -> None:
    """Of a padding between 5% and 15%, in the place of rounds of boxes of exact shapes."""
    mesh = Mesh({"x": 2, "y": 4})
    sides = '[{}, {"y", "x"}, {}]', '[{"y":(2)2}, {}, {"y":(1)2}]'
    made = plan(Reshard((227, 99, 99), "float32", *map(mesh.sharding, sides)))
    how = jax_xla.how_of(made)
    assert isinstance(how, Groups)
    assert how.members == 8
    exact = made.traffic.received_total // made.reshard.itemsize
    assert 1.05 * exact < how.wire[1] < 1.15 * exact
