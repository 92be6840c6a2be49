"""Shardings by subscripts of indices: `A[I_X, J_Y] {U_Z}`."""

from __future__ import annotations

import random

import pytest
from matmuls import random_sharding
from strategies import message

import shardwright as sw
from shardwright.ir.axes import AxisRef
from shardwright.ir.sharding import Sharding
from shardwright.ir.text.index_notation import index_names, parse_indexed

MESH = sw.Mesh({"X": 4, "Y": 2, "Z": 2})


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("A[I, J]", "[{}, {}]"),
        ("A[I_X, J]", '[{"X"}, {}]'),
        ("A[I_X, J_Y]", '[{"X"}, {"Y"}]'),
        ("A[I_XY, J]", '[{"X", "Y"}, {}]'),
        ("A[I_{YX}, J]", '[{"Y", "X"}, {}]'),
        ("C[I_X,K] {U_Y}", '[{"X"}, {}], unreduced={"Y"}'),
        (" W1 [ B , I_X , J ] { U_ZY } ", '[{}, {"X"}, {}], unreduced={"Y", "Z"}'),
    ],
)
def test_parse(text: str, wanted: str) -> None:
    assert str(parse_indexed(text, MESH)) == wanted


def written(sharding: Sharding) -> str:
    """A sharding of whole axes, by subscripts."""

    def subscript(refs: tuple[AxisRef, ...]) -> str:
        return "_" + "".join(ref.name for ref in refs) if refs else ""

    dims = (f"{'IJK'[n]}{subscript(dim.axes)}" for n, dim in enumerate(sharding.dims))
    unreduced = f" {{U{subscript(sharding.unreduced)}}}" if sharding.unreduced else ""
    return f"T[{', '.join(dims)}]{unreduced}"


@pytest.mark.parametrize("seed", range(20))
def test_what_is_written_is_read(seed: int) -> None:
    rng = random.Random(seed)
    mesh = sw.Mesh({"x": 2, "data": 3, "axis_2": 2, "dat": 3})
    sharding = mesh.sharding(random_sharding(rng, mesh, rank=3))
    text = written(sharding)
    assert index_names(text) == ("I", "J", "K")
    assert parse_indexed(text, mesh) == sharding


MISTAKES = [
    (
        "A[I_X, J_X]",
        """sharding: an axis or sub-axis may be used only once
  A[I_X, J_X]
           ^
got: "X" in dimension 0 and in dimension 1
expected: "X" in one place only""",
    ),
    (
        "A[I_XYW, J]",
        """sharding: a subscript must consist of axis names of the mesh
  A[I_XYW, J]
      ^^^
got: XYW
expected: "X", "Y", "Z\"""",
    ),
    (
        "A[I_X, , J]",
        """sharding: a dimension must be an index, with the mesh axes that split it as its subscript
  A[I_X, , J]
        ^
got: nothing
expected: A[I_X, J], or A[I, J] {U_X}""",
    ),
    (
        "A[I_X, J",
        """sharding: the text must be a name, indices in brackets, then any unreduced axes in braces
  A[I_X, J
  ^^^^^^^^
got: A[I_X, J
expected: A[I_X, J], or A[I, J] {U_X}""",
    ),
]


@pytest.mark.parametrize(("text", "wanted"), MISTAKES)
def test_invalid(text: str, wanted: str) -> None:
    assert message(lambda: parse_indexed(text, MESH, "sharding")) == wanted


def test_a_subscript_of_two_meanings_is_refused() -> None:
    mesh = sw.Mesh({"X": 2, "Y": 2, "XY": 2})
    assert (
        message(lambda: parse_indexed("A[I_XY, J]", mesh))
        == """a subscript must not be ambiguous
  A[I_XY, J]
      ^^
got: XY: "X", "Y" or "XY"
expected: axes in quotes, for example '[{"X", "Y"}, {}]'"""
    )
