"""The legend of a module explains its names, and the names say the operations that are written."""

from __future__ import annotations

import ast
import re
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import shardwright as sw

MESH = sw.Mesh({"d": 4, "t": 2})
OPERATORS = {"add": ast.Add, "sub": ast.Sub, "mul": ast.Mult, "div": ast.Div, "pow": ast.Pow}
"""The operator of each word with which the name of a value may end."""


def norm(x: Any, scale: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    var = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / jnp.sqrt(var + 1e-5) * scale


def loss(params: Any, x: Any) -> Any:
    for number in range(2):
        x = x + jnp.tanh(norm(x, params[f"norm{number + 1}"]) @ params["w1"]) @ params["w2"]
    return (jax.nn.softmax(x) * x).sum()


def text(mode: str) -> str:
    of = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)  # noqa: E731
    params = {"norm1": of(16), "norm2": of(16), "w1": of(16, 32), "w2": of(32, 16)}
    specs = {"norm1": None, "norm2": None, "w1": '[{"d"}, {"t"}]', "w2": '[{"t"}, {"d"}]'}
    sides = {"in_shardings": (specs, '[{"d", "t"}, {}]'), "mode": mode}
    made = sw.partition(jax.value_and_grad(loss), params, of(16, 16), mesh=MESH, **sides)
    return sw.emit(made).files("step")["jax_spmd.py"]


@pytest.mark.parametrize("mode", ["as_shardy", "cheapest"])
def test_entries_occur(mode: str) -> None:
    """Each suffix, type and kind of terms in the legend is in the code, and each is in the legend
    if it is in the code."""
    start, code = text(mode).split('"""\n', 1)
    legend = start.partition("whole values.\n")[2]
    entries = [line[4:].partition("  ")[0] for line in legend.splitlines()]
    for entry in entries:
        own = {"d_x": r"\bd_\w+ = ", "bwd_x_mul": r"\bbwd_\w+ = "}.get(entry)
        is_suffix = own is None and entry.startswith("x_")
        wanted = rf"\w_{entry[2:]}(_\d+)? = " if is_suffix else re.escape(entry)
        assert re.search(own or wanted, code), entry
    assert ("terms of a sum" in legend) == ("terms of a sum" in code)
    assert ("@d@t" in legend) == ("@d@t" in code)
    assert "d_x" in entries


@pytest.mark.parametrize("mode", ["as_shardy", "cheapest"])
def test_names_say_the_operation(mode: str) -> None:
    """A name that ends with an operation is of a statement with that operation."""
    made = text(mode)
    assert "add_any" not in re.sub("# .*", "", made)
    found = 0
    for node in ast.walk(ast.parse(made)):
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        name = re.sub(r"_\d+$", "", node.targets[0].id)
        if name.startswith("d_"):  # such as the gradient of a sum
            continue
        word = name.rpartition("_")[2]
        if word == "broadcast":
            assert "broadcast" in ast.unparse(node.value) or "None" in ast.unparse(node.value)
        if word in OPERATORS and isinstance(node.value, ast.BinOp):
            assert isinstance(node.value.op, OPERATORS[word]), ast.unparse(node)
            found += 1
        elif isinstance(node.value, ast.BinOp) and name.startswith("bwd_"):
            assert word not in ("broadcast", "sum", "reshape"), ast.unparse(node)
    assert found > 10


def test_no_name_differs_by_an_underscore() -> None:
    """`norm_2` is no other value where the user has a `norm2`."""
    names = set(re.findall(r"\b[a-z]\w*", re.sub("# .*", "", text("as_shardy"))))
    assert not {name for name in names if re.fullmatch(r"(d_)?norm_[12]", name)}


def test_layers_under_numbered_keys_are_a_loop() -> None:
    """Forward and backward. A comment says that the backward pass starts at the last layer."""

    def step(params: Any, x: Any) -> Any:
        for number in range(6):
            own = params[f"Block_{number}"]
            x = x + jnp.tanh(norm(x, own["norm"]) @ own["w1"]) @ own["w2"]
        return (x * x).sum()

    of = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)  # noqa: E731
    block = {"norm": of(16), "w1": of(16, 32), "w2": of(32, 16)}
    params = {f"Block_{number}": block for number in range(6)}
    made = sw.partition(jax.value_and_grad(step), params, of(16, 16), mesh=MESH)
    text = sw.emit(made).files("step")["jax_spmd.py"]
    assert "def block_backward(" in text
    assert re.search(r'params\[f"Block_{i( \+ 1)?}"\]', text)
    assert 'params[f"Block_{5 - i}"]' in text
    assert '[0]["gradients"]' in text
    assert text.count("# Last layer first: block_gradients[0] is of blocks[4].") == 1


def test_a_broadcast_has_the_name_of_its_operand() -> None:
    """If the operand has no statement of its own, as a cast has none."""

    def step(x: Any, angle: Any) -> Any:
        sin, cos = jnp.sin(angle).astype(x.dtype), jnp.cos(angle).astype(x.dtype)
        a, b = x[..., :4], x[..., 4:]
        return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)

    x = jax.ShapeDtypeStruct((4, 2, 8), jnp.bfloat16)
    angle = jax.ShapeDtypeStruct((4,), jnp.float32)
    text = sw.emit(sw.partition(step, x, angle, mesh=MESH)).files("step")["jax_spmd.py"]
    for name in ("sin", "cos"):
        assert re.search(rf"^    {name}(_2)? = .*astype\(jnp.bfloat16\)\[None", text, re.MULTILINE)


def test_a_function_for_two_leaves_names_neither() -> None:
    """Its parameter for their gradients has the words that they share."""

    def step(params: Any, x: Any) -> Any:
        def loss(params: Any) -> Any:
            return jnp.tanh(x * params["norm"]["scale"] + params["norm"]["bias"]).sum()

        grads, new = jax.grad(loss)(params), {}
        for key in ("bias", "scale"):
            g = grads["norm"][key]
            for number in range(12):
                g = jnp.cumsum(jnp.tanh(g * (number + 2.0)))
            new[key] = params["norm"][key] - g
        return {"norm": new}

    leaf = jax.ShapeDtypeStruct((16,), jnp.float32)
    params = {"norm": {"bias": leaf, "scale": leaf}}
    text = sw.emit(sw.partition(step, params, leaf, mesh=MESH)).files("step")["jax_spmd.py"]
    (given,) = re.findall(r"^def norm_leaf\w*\((.*)\):", text, re.MULTILINE)
    assert sorted(given.split(", ")) == ["d_params_norm", "params_norm"]
    assert "of a norm leaf, one of 2" in text
