"""Sub-axes at the edges of a program: allowed, or gathered."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from strategies import message

import shardwright as sw
from shardwright.codegen.partition.edges import without_sub_axes
from shardwright.ir.program_check import well_formed

MESH = sw.Mesh({"x": 4, "y": 2})


def split(a: Any) -> Any:
    return jnp.sin(a.reshape(2, 4))


def partitioned(**said: Any) -> sw.Partitioned:
    aval = jax.ShapeDtypeStruct((8,), jnp.float32)
    return sw.partition(split, aval, mesh=MESH, **said)


def test_results() -> None:
    """The example of sub-axes: the values inside have them, the result has them if they may be."""
    given = '[{"x"}]'
    allowed = partitioned(in_shardings=given)
    gathered = partitioned(in_shardings=given, sub_axes_at_edges="gather")
    assert str(allowed.out_shardings) == '[{"x":(1)2, ?}, {"x":(2)2, ?}]'
    assert str(gathered.out_shardings) == "[{?}, {?}]"
    program = well_formed(gathered.program)
    (sine,) = [op for op in program.body.ops if op.kind == "sin"]
    inside = program.values[sine.results[0]].sharding
    assert str(inside) == '[{"x":(1)2, ?}, {"x":(2)2, ?}]'


def test_arguments() -> None:
    """What comes back from a result: a whole axis stays, and what is after a sub-axis goes too."""
    given = '[{"y"}, {"x":(2)2}]'
    assert str(partitioned(out_shardings=given).in_shardings[0]) == '[{"y", "x":(2)2, ?}]'
    gathered = partitioned(out_shardings=given, sub_axes_at_edges="gather")
    assert str(gathered.in_shardings[0]) == '[{"y", ?}]'
    assert str(gathered.out_shardings) == given  # what is closed was said so
    assert str(gathered.after(priority=0).in_shardings[0]) == '[{"y", ?}]'


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ('[{"x":(2)2, "y", ?}, {?}], replicated={"x":(1)2}', '[{?}, {?}], replicated={"x":(1)2}'),
        ('[{"y", ?}p1, {"x", ?}]', '[{"y", ?}p1, {"x", ?}]'),
        ('[{"x":(1)2, "y"}, {"x":(2)2, ?}]', '[{"x":(1)2, "y"}, {?}]'),
    ],
)
def test_which_axes_go(given: str, expected: str) -> None:
    assert str(without_sub_axes(MESH.sharding(given))) == expected


def test_what_is_neither() -> None:
    assert message(lambda: partitioned(sub_axes_at_edges="no")) == (
        "sub_axes_at_edges: unknown choice for sub-axes of arguments and results\n"
        "got: no\nexpected: one of allow, gather"
    )
