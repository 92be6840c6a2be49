"""What a remedy does in all, by partitioning again."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import shardwright as sw
from shardwright.codegen.show.program_review import remedies_text

MESH = sw.Mesh({"d": 4})


def step(p: Any, x: Any) -> Any:
    """A gradient of weights that are split as the batch is."""
    return jax.grad(lambda p: (jnp.tanh(x @ p["w"]) ** 2).mean())(p)


def program() -> sw.Partitioned:
    w = jax.ShapeDtypeStruct((32, 32), jnp.float32)
    x = jax.ShapeDtypeStruct((256, 32), jnp.float32)
    weights = {"w": '[{"d"}, {}]'}
    sides: Any = {"in_shardings": (weights, '[{"d"}, {}]'), "out_shardings": weights}
    return sw.partition(step, {"w": w}, x, mesh=MESH, mode="cheapest", **sides)


def test_a_gather_that_is_removed() -> None:
    made = program()
    (gather, *_) = made.communications
    assert (gather.op, gather.value) == ("all_gather", "p_w")
    after = made.with_remedy(gather.number)
    assert str(after.in_shardings[0]["w"]) == "[{}, {}]"
    assert str(after.in_shardings[1]) == str(made.in_shardings[1])
    assert [each.op for each in after.communications] == ["reduce_scatter"]
    assert made.bytes_received - after.bytes_received == gather.bytes == 3 * 8 * 32 * 4


def test_the_text_of_all_remedies() -> None:
    made = program()
    assert remedies_text(made) == (
        "with an argument left whole where it is gathered, in all is received:\n"
        "    C1 (p_w): 3 KiB, 3 KiB less\n"
    )
    assert remedies_text(made.with_remedy(1)) == "no argument is gathered\n"


def test_in_functions_every_layer_is_left_whole() -> None:
    def layers(ps: Any, x: Any) -> Any:
        for p in ps:
            h = jnp.tanh(x @ p) + jnp.sin(x) * jnp.cos(x) - jnp.exp(-x) * jnp.sin(2 * x)
            x = jnp.tanh(h) * 0.5 + jnp.cos(h) * 0.25 + x - jnp.sin(h) * jnp.exp(-h * h)
        return x

    w, x = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((32, 32), (256, 32)))
    given = ('[{"d"}, {}]', '[{"d"}, {}]')
    made = sw.partition(layers, [w] * 6, x, mesh=MESH, mode="cheapest", in_shardings=given)
    assert made.local.functions
    gathers = [each for each in made.communications if each.op == "all_gather"]
    assert sum(each.times for each in gathers) == 6
    after = made.with_remedy(gathers[0].number)
    whole = [str(each) for each in after.in_shardings[0]]
    assert whole.count("[{}, {}]") == gathers[0].times
    assert made.bytes_received - after.bytes_received == gathers[0].bytes


def test_other_communications_have_none() -> None:
    made = program()
    (other,) = (each for each in made.communications if each.op != "all_gather")
    with pytest.raises(sw.InputError, match="arguments that are gathered"):
        made.with_remedy(other.number)
    with pytest.raises(sw.InputError, match="1 to 2"):
        made.with_remedy(3)
    with pytest.raises(sw.InputError, match="the number of a communication"):
        made.with_remedy("C1")  # type: ignore[arg-type]
