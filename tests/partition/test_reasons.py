"""What the report says of why something is moved is so."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp

import shardwright as sw
from shardwright.codegen.partition.local.known import known_as

MESH = sw.Mesh({"d": 2, "t": 4})
REPEATED = '; the devices along "t" then repeat 100 % of the computation'


def reasons(*shardings: str) -> list[str]:
    """The reasons of a product of a small and a large matrix."""
    f32 = jnp.float32
    avals = jax.ShapeDtypeStruct((64, 8), f32), jax.ShapeDtypeStruct((8, 64), f32)
    program = sw.partition(
        lambda x, w: x @ w, *avals, mesh=MESH, in_shardings=shardings, mode="cheapest"
    )
    return [each.reason for each in program.communications]


REPEATED = '; the devices along "t" then repeat 100 % of the computation'


def test_both_operands_are_split_and_gathering_is_cheaper() -> None:
    """The result has 64 x 64 elements, each operand an eighth of that."""
    found = reasons("P(None, 't')", "P('t', None)")
    said = 'dot_general needs dimension {} of {} whole: {} is split over "t" along it too, '
    cost = 'a sum over "t" instead would cost more in total'
    assert found == [
        said.format(1, "x", "w") + cost + REPEATED,
        said.format(0, "w", "x") + cost + REPEATED,
    ]


def test_one_operand_alone_is_split() -> None:
    nothing = 'no other tensor of it is split over "t" along this dimension'
    assert reasons("P(None, 't')", "P()") == [
        f"dot_general needs dimension 1 of x whole: {nothing}{REPEATED}"
    ]


def test_values_are_told_in_the_users_words() -> None:
    """Of which argument they are another shape, for which of several results they are computed."""

    def step(p: Any, x: Any) -> Any:
        h = x * p["gain"]
        return h.sum(), x.T @ jnp.tanh(h)

    shape = jax.ShapeDtypeStruct((8, 8), jnp.float32)
    gain = jax.ShapeDtypeStruct((8,), jnp.float32)
    program = sw.partition(
        step,
        *({"gain": gain}, shape),
        mesh=sw.Mesh({"d": 4}),
        in_shardings=({"gain": '[{"d"}]'}, '[{"d"}, {}]'),
        out_shardings=("[]", '[{"d"}, {}]'),
    )
    reasons = [each.reason for each in program.communications]
    assert any("(of p_gain) whole" in reason for reason in reasons), reasons
    names = known_as(program.program)
    assert [name for name in names.values() if "(for result[1])" in name]
    assert names[program.program.body.arguments[0]] == "p_gain"


def test_every_axis_of_a_sum_has_its_origin() -> None:
    """A sum over axes that split its operand and over one that holds terms of it."""
    f32, i32 = jnp.float32, jnp.int32
    avals = jax.ShapeDtypeStruct((8, 16), f32), jax.ShapeDtypeStruct((8, 1), i32)
    program = sw.partition(
        lambda x, at: jnp.take_along_axis(x, at, axis=1).sum(),
        *avals,
        mesh=MESH,
        in_shardings=('[{"d"}, {"t"}]', '[{"d"}, {}]'),
        mode="as_shardy",
    )
    (both,) = program.communications
    assert both.axes == ("d", "t")
    assert re.search(r'split over "d", and terms of \w+ over "t"$', both.reason), both.reason
