"""The comments of an emitted module name values that the module has at that point."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from emitted_comments import unknown_names

import shardwright as sw


def block(p: Any, x: Any) -> Any:
    h = (x - x.mean(-1, keepdims=True)) * p["norm"]
    q, k = h @ p["wq"], h @ p["wk"]
    x = x + jax.nn.softmax(q @ k.swapaxes(-1, -2)) @ h
    return x + jax.nn.gelu(x @ p["w1"] + p["b1"]) @ p["w2"]


def step(p: Any, tokens: Any) -> Any:
    """A step of training with layers and an embedding."""

    def loss(p: Any) -> Any:
        x = p["table"][tokens] + p["place"]
        for layer in p["layers"]:
            x = block(layer, x)
        scores = jax.nn.log_softmax(x @ p["table"].T)
        return -jnp.take_along_axis(scores, tokens[..., None], -1)[..., 0].mean()

    value, gradients = jax.value_and_grad(loss)(p)
    return jax.tree.map(lambda w, g: w - 0.1 * g, p, gradients), value


def module_of(mode: str) -> str:
    """The module of the step, with its weights split over both axes."""
    f32 = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)  # noqa: E731
    shapes = {"wq": (16, 16), "wk": (16, 16), "w1": (16, 64), "w2": (64, 16)}
    layer = {name: f32(*shape) for name, shape in shapes.items()}
    split = dict.fromkeys(layer, '[{"d"}, {"t"}]') | {"w2": '[{"t"}, {"d"}]'}
    layer |= {"norm": f32(16), "b1": f32(64)}
    split |= {"norm": '[{"d"}]', "b1": '[{"t"}]'}
    p = {"table": f32(32, 16), "place": f32(4, 16), "layers": [layer] * 4}
    weights = {"table": '[{"t"}, {"d"}]', "place": '[{}, {"d"}]', "layers": [split] * 4}
    tokens, rows = jax.ShapeDtypeStruct((8, 4), jnp.int32), '[{"d"}, {}]'
    sides: Any = {"in_shardings": (weights, rows), "out_shardings": (weights, None)}
    mesh = sw.Mesh({"d": 4, "t": 2})
    return sw.emit(sw.partition(step, p, tokens, mesh=mesh, mode=mode, **sides)).module


@pytest.mark.parametrize("mode", ["as_shardy", "cheapest"])
def test_a_step(mode: str) -> None:
    text = module_of(mode)
    assert text.count("# [C") > 20
    assert unknown_names(text) == []


def test_a_name_of_no_value_is_found() -> None:
    text = module_of("cheapest")
    planted = re.sub(r"(dimension \d+ of )\w+", r"\1nothing", text, count=1)
    assert planted != text
    (found,) = unknown_names(planted)
    assert found.startswith("nothing in ")


@pytest.mark.parametrize("mode", ["as_shardy", "cheapest"])
def test_names_that_are_words_of_reasons(mode: str) -> None:
    """A loss that picks logits of a whole embedding, and a layer with a `value`, a `sum`, a `dim`
    and a `whole`: the words of a reason stay as they are."""

    def loss(p: Any, tokens: Any) -> Any:
        x = p["table"][tokens]
        for layer in p["layers"]:
            value = jnp.tanh(x @ layer["value"])
            sum = value - value.mean(-1, keepdims=True)
            whole = jax.nn.softmax(jnp.exp(sum / 3.0) @ layer["dim"])
            x = x + jnp.sin(whole * value) + jnp.cos(whole - sum) * jnp.exp(-whole * whole)
        scores = jax.nn.log_softmax(x @ p["table"].T)
        return jnp.take_along_axis(scores, tokens[..., None], -1)[..., 0].mean()

    f32 = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)  # noqa: E731
    layer = {"value": f32(16, 16), "dim": f32(16, 16)}
    p = {"table": f32(32, 16), "layers": [layer] * 4}
    split = {"value": '[{"d"}, {"t"}]', "dim": '[{"t"}, {"d"}]'}
    given = {"table": '[{"t"}, {"d"}]', "layers": [split] * 4}, '[{"d"}, {}]'
    tokens = jax.ShapeDtypeStruct((8, 4), jnp.int32)
    mesh = sw.Mesh({"d": 4, "t": 2})
    step = jax.value_and_grad(loss)
    made = sw.partition(step, p, tokens, mesh=mesh, mode=mode, in_shardings=given)
    text = sw.emit(made).module
    assert unknown_names(text) == []
    said = " ".join(re.findall(r"# +(.*)", text))
    assert not re.findall(r"the reduced (?!value of)", said)
