"""The user's functions that a module calls several times: the same program without them."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from programs import findings
from random_calls import moments, norm, squash
from user_calls_process import MESH, calls, text

import shardwright as sw

ROW = jax.ShapeDtypeStruct((16,), jnp.float32)
GIVEN = ((ROW, ROW, ROW), jax.ShapeDtypeStruct((32, 16), jnp.float32))


@pytest.mark.parametrize("mode", ["as_shardy", "cheapest"])
def test_the_program_is_the_same(mode: str) -> None:
    """Its compiled instructions and its values, to the bit, with and without the functions."""
    assert findings("user_calls_process.py", mode) == {
        "calls": {"rotated": 2, "norm": 2, "rotated_backward": 2},
        "calls without": {},
        "same instructions": True,
        "same bits": True,
        "close to one device": True,
    }


def two_norms(scales: Any, x: Any) -> Any:
    return jnp.sin(norm(norm(x, scales[0]), scales[1]))


def test_parameters_have_the_names_of_the_users_function() -> None:
    made = text(two_norms, GIVEN)
    assert "def norm(wide, scale):" in made
    assert calls(made) == {"norm": 2}
    assert made.count("lax.rsqrt") == 1


def test_calls_in_a_loop_are_separate() -> None:
    def looped(scales: Any, x: Any) -> Any:
        for scale in scales:
            x = norm(x, scale)
        return x

    assert calls(text(looped, GIVEN)) == {"norm": 3}


def outer(scale: Any, x: Any) -> Any:
    return squash(norm(x, scale)) + squash(jnp.sin(x))


def test_a_function_within_a_function_is_called_there() -> None:
    def twice(scales: Any, x: Any) -> Any:
        return outer(scales[1], outer(scales[0], x)) * 2.0

    made = text(twice, GIVEN)
    assert calls(made) == {"outer": 2, "squash": 2}
    for name, body in re.findall(r"^def (\w+)\(.*?\):\n(.*?)(?=^\S)", made, re.M | re.S):
        assert f" {name}(" not in body, name


def test_values_that_only_some_callers_use() -> None:
    def some(_: Any, x: Any) -> Any:
        centred, mean, spread = moments(x, 1)
        again, _, last = moments(centred * 2, 1)
        return again + mean, last + spread

    made = text(some, GIVEN)
    assert calls(made) == {"moments": 2}
    assert re.search(r"_, \w+, \w+ = moments\(", made)


def test_calls_that_communicate_stay_open() -> None:
    """Columns are split, so a mean over them is a sum over devices."""

    columns = MESH.sharding('[{}, {"d"}]')
    made = sw.partition(two_norms, *GIVEN, mesh=MESH, in_shardings=(None, columns))
    assert calls(sw.emit(made).module) == {}
