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
