"""What the report says of why something is moved is so."""

from __future__ import annotations

import jax
import jax.numpy as jnp

import shardwright as sw

MESH = sw.Mesh({"d": 2, "t": 4})


def reasons(*shardings: str) -> list[str]:
    """The reasons of a product of a small and a large matrix."""
    f32 = jnp.float32
    avals = jax.ShapeDtypeStruct((64, 8), f32), jax.ShapeDtypeStruct((8, 64), f32)
    program = sw.partition(
        lambda x, w: x @ w, *avals, mesh=MESH, in_shardings=shardings, mode="cheapest"
    )
    return [each.reason for each in program.communications]


def test_both_operands_are_split_and_gathering_is_cheaper() -> None:
    """The result has 64 x 64 elements, each operand an eighth of that."""
    found = reasons("P(None, 't')", "P('t', None)")
    said = 'dot_general needs dimension {} of {} whole: {} is split over "t" along it too, '
    cost = 'a sum over "t" instead would cost more in all'
    assert found == [said.format(1, "x", "w") + cost, said.format(0, "w", "x") + cost]


def test_one_operand_alone_is_split() -> None:
    nothing = 'nothing else there is split over "t" along it'
    assert reasons("P(None, 't')", "P()") == [
        f"dot_general needs dimension 1 of x whole: {nothing}"
    ]
