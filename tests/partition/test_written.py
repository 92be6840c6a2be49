"""Remedies name what the user's source has: variables where they are assigned, and expressions."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import shardwright as sw

CONSTRAINED = re.compile(r"constrain (\w+|`[^`]+`|the [\w ]+|the result of `[^`]+`) to (\[.*?\]) ")
PLACED = re.compile(r"at \S*test_written\.py:(\d+)(?:, in ([\w.]+))?")
SOURCE = Path(__file__).read_text().splitlines()
TREE = ast.parse("\n".join(SOURCE))
F32 = jnp.float32


def norm(x: Any, scale: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * scale


def attention(p: Any, x: Any) -> Any:
    q = jnp.einsum("btd,dhk->bthk", x, p["wq"])
    scores = jax.nn.softmax(jnp.einsum("bthk,bshk->bhts", q, q))
    return jnp.einsum("bhts,bshk,hkd->btd", scores, q, p["wo"]), {"q": q}


def block(p: Any, x: Any) -> Any:
    y, _ = attention(p, norm(x, p["norm"]))
    x = x + y
    h = jax.nn.gelu(norm(x, p["norm"]) @ p["w1"])
    return x + h @ p["w2"]


def loss(params: Any, tokens: Any) -> Any:
    x = params["embed"][tokens]
    for layer in params["layers"]:
        x = block(layer, x)
    x = norm(x, params["norm"])
    logits = x @ params["embed"].T
    return -jax.nn.log_softmax(logits)[..., 0].mean()


def loop(params: Any, tokens: Any) -> Any:
    """Layers in a scan, whose carry is no variable of the function that calls it."""
    stacked = jax.tree.map(lambda *p: jnp.stack(p), *params["layers"])
    x, _ = jax.lax.scan(lambda x, p: (block(p, x), None), params["embed"][tokens], stacked)
    return (x @ params["embed"].T).sum()


def remedies_of(fn: Any, mode: str, step: bool) -> list[str]:
    f32 = lambda *shape: jax.ShapeDtypeStruct(shape, F32)  # noqa: E731
    layer = {"wq": f32(32, 4, 8), "wo": f32(4, 8, 32), "w1": f32(32, 64), "w2": f32(64, 32)}
    heads, columns, rows = '[{"d"}, {"t"}, {}]', '[{"d"}, {"t"}]', '[{"t"}, {"d"}]'
    split = {"wq": heads, "wo": '[{"t"}, {}, {"d"}]', "w1": columns, "w2": rows, "norm": None}
    layer["norm"] = f32(32)
    params = {"embed": f32(64, 32), "layers": [layer] * 4, "norm": f32(32)}
    weights = {"embed": rows, "layers": [split] * 4, "norm": None}
    tokens = jax.ShapeDtypeStruct((8, 16), jnp.int32)
    made = sw.partition(
        jax.value_and_grad(fn) if step else fn,
        *(params, tokens),
        mesh=sw.Mesh({"d": 4, "t": 2}),
        in_shardings=(weights, '[{"d"}, {}]'),
        mode=mode,
    )
    return [each.remedy for each in made.communications]


def bound(function: str, line: int) -> Iterator[str]:
    """Yield the names that a function assigns at a line."""
    for each in ast.walk(TREE):
        if isinstance(each, ast.FunctionDef) and each.name == function:
            for name in ast.walk(each):
                if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store):
                    yield from [name.id] if name.lineno == line else []


@pytest.mark.parametrize("mode", ["as_shardy", "cheapest"])
@pytest.mark.parametrize("step", [False, True])
@pytest.mark.parametrize("fn", [loss, loop])
def test_each_name_is_assigned_at_its_line(fn: Any, step: bool, mode: str) -> None:
    every = remedies_of(fn, mode, step)
    for remedy in (each for each in every if each.startswith("constrain ")):
        for (text, _), (line, function) in zip(
            CONSTRAINED.findall(remedy), PLACED.findall(remedy), strict=True
        ):
            if text.isidentifier():
                assert text in [*bound(function, int(line))], remedy
            elif text.startswith("`"):
                assert text.strip("`") in SOURCE[int(line) - 1], remedy
            else:
                assert text in ("the product", "the sum", "the result of `jnp.einsum`"), remedy
            own = {"loss": loss, "block": block, "norm": norm, "attention": attention, "loop": loop}
            lines, first = inspect.getsourcelines(own[function])
            assert first < int(line) < first + len(lines), remedy


def test_forms_of_expressions() -> None:
    found = " ".join(remedies_of(loss, "as_shardy", step=True))
    assert re.search(r"constrain x to \[.*?\] at \S+:\d+, in loss", found)
    assert re.search(r"constrain y to \[.*?\] at \S+:\d+, in block, for each of 4 layers", found)
    assert 'constrain `h @ p["w2"]` to ' in found
    assert 'constrain `norm(x, p["norm"])` to ' in found


def test_values_of_a_loop_are_those_of_its_body() -> None:
    """Not the variable to which the scan returns the last one."""
    for remedy in remedies_of(loop, "as_shardy", step=False):
        assert "constrain x to" not in remedy or ", in block" in remedy


def test_parts_of_one_expression_have_its_remedy() -> None:
    """The sum in a mean, and that in a library's function."""

    def spread(x: Any) -> Any:
        y = jax.nn.logsumexp(x, axis=-1)
        return jnp.exp(norm(x, 2.0)) + y[:, None]

    made = sw.partition(
        spread,
        jax.ShapeDtypeStruct((32, 8), F32),
        mesh=sw.Mesh({"d": 2, "t": 2}),
        in_shardings=('[{}, {"t"}]',),
        mode="as_shardy",
    )
    found = {each.value: each.remedy for each in made.communications}
    assert found["mean_sum"].startswith('constrain mean to [{"t"}, {}] at ')
    assert found["y_sum"].startswith('constrain y to [{"t"}] at ')


def test_a_remedy_for_a_weight_names_what_has_its_place() -> None:
    """Its gradient may be transposed, and an optimizer's state has its keys and its sharding."""

    def step(params: Any, state: Any, batch: Any) -> Any:
        def of(p: Any) -> Any:
            y = jnp.tanh(batch @ p["w"] + p["b"])
            return (y @ p["out"]).sum()

        grads = jax.grad(of)(params)
        state = jax.tree.map(lambda m, g: 0.9 * m + g, state, grads)
        return jax.tree.map(lambda p, m: p - 0.1 * m, params, state), state

    f32 = lambda *shape: jax.ShapeDtypeStruct(shape, F32)  # noqa: E731
    params = {"w": f32(8, 16), "b": f32(16), "out": f32(16, 4)}
    own = {"w": '[{}, {"t"}]', "b": '[{"t"}]', "out": '[{"t"}, {}]'}
    sides: Any = {"in_shardings": (own, own, '[{"d"}, {}]'), "out_shardings": (own, own)}
    made = sw.partition(
        step, params, params, f32(32, 8), mesh=sw.Mesh({"d": 2, "t": 2}), mode="as_shardy", **sides
    )
    found = {each.value: each.remedy for each in made.communications}
    end = " (and the same in state and the results), which also constrains its gradient: a "
    assert found["d_params_b"] == (
        f'shard the argument params[\'b\'] as [{{"t", "d"}}]{end}reduce-scatter takes half'
    )
    assert found["d_params_w_transposed"] == (
        f'shard the argument params[\'w\'] as [{{}}, {{"t", "d"}}]{end}reduce-scatter takes half'
    )
