"""Specifications that are shorter than the rank: what they leave out is replicated, as in JAX."""

from __future__ import annotations

import jax
import pytest

import shardwright as sw
from shardwright.ir import InputError


def partitioned(given: str) -> sw.Partitioned:
    """The identity of a matrix."""
    x = jax.ShapeDtypeStruct((8, 4), "float32")
    return sw.partition(lambda x: x + 1, x, mesh=sw.Mesh({"d": 4}), in_shardings=given)


def test_a_text_of_a_specification() -> None:
    assert str(partitioned("P('d')").in_shardings) == str(partitioned("P('d', None)").in_shardings)


def test_a_list_has_every_dimension() -> None:
    with pytest.raises(InputError, match="one dimension sharding for each dimension"):
        partitioned('[{"d"}]')


@pytest.mark.parametrize("given", ["P('d')", jax.sharding.PartitionSpec("d"), '[{"d"}, {}]'])
@pytest.mark.parametrize("mesh", [None, sw.Mesh({"d": 4})])
def test_constraints_read_what_arguments_do(given: object, mesh: sw.Mesh | None) -> None:
    def constrained(x: jax.Array) -> jax.Array:
        return sw.constrain(x, given, mesh)

    x = jax.ShapeDtypeStruct((8, 4), "float32")
    found = sw.partition(constrained, x, mesh=sw.Mesh({"d": 4}))
    assert str(found.in_shardings) == str(partitioned("P('d')").in_shardings).replace("{}", "{?}")


def test_results_are_named_by_their_path() -> None:
    x = jax.ShapeDtypeStruct((8, 4), "float32")

    def same(x: jax.Array) -> dict[str, list[jax.Array]]:
        return {"y": [x]}

    given = {"in_shardings": "P('d')", "out_shardings": {"y": ["P(None, 'd')"]}}
    (found,) = sw.partition(same, x, mesh=sw.Mesh({"d": 4}), **given).communications
    assert found.reason == "result['y'][0] must be [{}, {\"d\"}]"


def test_a_tree_of_other_keys_says_which() -> None:
    p = {"a": jax.ShapeDtypeStruct((8,), "float32"), "b": jax.ShapeDtypeStruct((8,), "float32")}
    with pytest.raises(InputError, match=r"^in_shardings\[0\]: unknown key\ngot: z\n"):
        sw.partition(
            lambda p: p["a"], p, mesh=sw.Mesh({"d": 4}), in_shardings=({"a": "P()", "z": None},)
        )
    with pytest.raises(InputError, match=r"^in_shardings\[0\]: the key b is missing\n"):
        sw.partition(lambda p: p["a"], p, mesh=sw.Mesh({"d": 4}), in_shardings=({"a": "P()"},))
