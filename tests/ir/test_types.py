"""Values of a type that is not taken: one InputError each, before anything is made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from strategies import exactly, message

from shardwright.codegen.moves import plan
from shardwright.codegen.operations.emit.emit import emit
from shardwright.ir import AxisRef, DimSharding, Mesh, Reshard, Sharding

MESH = Mesh({"x": 2, "y": 3})
ROWS = MESH.sharding('[{"x"}, {}]')
RESHARD = Reshard((6, 6), "float32", ROWS, ROWS)


def loosely(call: Callable[..., object]) -> Any:
    """A function as someone calls it who checks no types."""
    return call


AXES = {
    "devices and names, as jax takes them": (np.arange(6).reshape(2, 3), ("x", "y")),
    "sizes and names": ((2, 3), ("x", "y")),
    "names and sizes": (("x", "y"), (2, 3)),
    "a number": (6,),
    "a text": ("x=2,y=3",),
    "nothing": (None,),
}


@pytest.mark.parametrize("given", AXES.values(), ids=AXES)
def test_axes_of_a_mesh(given: tuple[object, ...]) -> None:
    shown = " ".join(repr(given[0]).split())
    assert message(lambda: loosely(Mesh)(*given)) == exactly(
        f"""
        axes: every axis of a mesh must have a name and a size
        got: {shown}
        expected: {{"x": 2, "y": 3}}, major to minor
        """
    )


def test_axes_as_pairs() -> None:
    assert Mesh([("x", 2), ("y", 3)]) == loosely(Mesh)([["x", 2], ["y", 3]]) == MESH


def test_device_ids() -> None:
    assert message(lambda: loosely(Mesh)({"x": 2}, device_ids=2)) == exactly(
        """
        device_ids must be a sequence of integers
        got: 2
        expected: one id per position, for example [1, 0]
        """
    )
    assert "got: '1'" in message(lambda: loosely(Mesh)({"x": 2}, device_ids="10"))
    assert "got: '2'" in message(lambda: loosely(Mesh)({"x": "2"}))
    assert "got: 3" in message(lambda: loosely(Mesh)({"x": 2}, name=3))


WRONG: dict[str, tuple[Callable[[], object], str, str]] = {
    "a mesh's text": (lambda: loosely(Mesh.parse)(3), "str", "3"),
    "names for axes": (lambda: loosely(DimSharding)(("x",)), "AxisRef", "'x'"),
    "a pre-size": (lambda: loosely(AxisRef)("x", 1.5, 2), "int", "1.5"),
    "a sharding's mesh": (lambda: loosely(Sharding)("x=2", ()), "Mesh", "'x=2'"),
    "dimensions": (lambda: loosely(Sharding)(MESH, [("x",)]), "DimSharding", "('x',)"),
    "replicated axes": (lambda: loosely(Sharding)(MESH, (), ("x",)), "AxisRef", "'x'"),
    "what is planned": (lambda: loosely(plan)("x"), "Reshard", "'x'"),
    "a topology": (lambda: loosely(plan)(RESHARD, topology=5), "str", "5"),
    "a folder": (lambda: loosely(emit(RESHARD).write)(None), "Path", "None"),
    "a lone backend": (lambda: loosely(emit)(RESHARD, "triton_gpu"), "tuple", "'triton_gpu'"),
}


@pytest.mark.parametrize(("call", "kind", "got"), WRONG.values(), ids=WRONG)
def test_a_value_of_another_type(call: Callable[[], object], kind: str, got: str) -> None:
    rule, said, expected = message(call).splitlines()
    assert rule.endswith(f"the value must be of type {kind}")
    assert said == f"got: {got}"
    assert expected.startswith("expected: ")


def test_what_has_no_modules() -> None:
    assert message(lambda: loosely(emit)(None)) == exactly(
        """
        this value has no modules to emit
        got: NoneType
        expected: a Reshard, Matmul or Relayout, a plan, a partitioned function, or the `plan` of a result of sw.sync
        """  # noqa: E501
    )


def test_axes_of_a_dimension_as_one_text() -> None:
    assert message(lambda: loosely(DimSharding)("x")) == exactly(
        """
        axes: the value must be a sequence of AxisRef
        got: 'x'
        expected: (AxisRef("x"), …)
        """
    )
