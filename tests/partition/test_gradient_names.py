"""In emitted modules `d_h` is the gradient by `h`, or is not called so."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from programs import findings
from sweeps import swept

import shardwright as sw

NAMED = {"norm1", "norm2", "wq", "wk", "w1", "b1", "w2", "norm", "q", "weights"}
"""Values and weights of a layer whose gradients have names."""


def wrong(first: int, last: int) -> list[str]:
    found = findings("gradient_names_process.py", "random", str(first), str(last))
    return [f"{names} of {text}" for text, names in found.items() if names]


def test_random_losses() -> None:
    """Each has its loss and gradients; their variables have the same names several times."""
    assert wrong(0, 5) == []


@pytest.mark.parametrize("start", swept(range(20, 220, 20), 100))
def test_the_sweep_of_random_losses(start: int) -> None:
    assert wrong(start, start + 20) == []


def test_layers() -> None:
    """The gradients in the function of a layer are those of the values of that layer."""
    found = findings("gradient_names_process.py", "layers")
    assert found["wrong"] == []
    named = {name.removesuffix("_transposed").removesuffix("_reshaped") for name in found["named"]}
    assert {f"d_{name}" for name in NAMED} <= named


def test_wrong_numbers_are_found() -> None:
    """Where names are exchanged, or a name tells of a value that is not there."""
    pairs = ("d_norm_2=d_norm", "d_q=d_h", "d_w1=d_w2", "d_weights=d_not_there")
    found = findings("gradient_names_process.py", "layers", *pairs)
    names = {each.partition(" ")[0] for each in found["wrong"]}
    assert {"d_norm_2", "d_q", "d_w1", "d_w2", "d_not_there"} <= names


def test_an_argument_that_only_a_result_reads() -> None:
    """State of an optimizer that a step passes on, beside gradients."""

    def step(w: jax.Array, kept: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.grad(lambda v: jnp.sum(jnp.tanh(v)))(w), kept

    avals = [jax.ShapeDtypeStruct((4,), "float32")] * 2
    program = sw.partition(step, *avals, mesh=sw.Mesh({"d": 2}))
    assert len(program.program.body.results) == 2
