"""A value that a program returns in a tree is named after its place there."""

from __future__ import annotations

import ast
import importlib.util
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import shardwright as sw
from shardwright.codegen.trace.returned import returned_variables

STEP = """
import jax
import jax.numpy as jnp

def step(params, state, x):
    grads = jax.tree.map(lambda w: jnp.tanh(w) * x, params)
    {mu} = jax.tree.map(lambda m, g: 0.9 * m + g, state["mu"], grads)
    {params} = jax.tree.map(lambda w, m: w - jnp.sqrt(m), params, {mu})
    state = dict(count=state["count"] + 1, mu={mu})
    {others} = jax.tree.map(jnp.exp, grads)
    return {returned}
"""


def text(fn: Any, *avals: Any) -> str:
    mesh = sw.Mesh({"d": 1})
    return sw.emit(sw.partition(fn, *avals, mesh=mesh)).files("step")["jax_spmd.py"]


def written(path: Path, source: str) -> Any:
    """Return the function `step` of a file with this source."""
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.step


def leaves_of(node: ast.expr, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the place and the text of each leaf of a tree that a module returns."""
    if isinstance(node, ast.Dict):
        for key, item in zip(node.keys, node.values, strict=True):
            assert isinstance(key, ast.Constant)
            yield from leaves_of(item, (*place, str(key.value)))
    elif isinstance(node, ast.Tuple):
        for number, item in enumerate(node.elts):
            yield from leaves_of(item, (*place, str(number)))
    else:
        yield place, ast.unparse(node)


def returned(made: str) -> dict[tuple[str, ...], str]:
    """Return the texts of the leaves that the function `step` of a module returns, by place."""
    (own,) = (f for f in ast.parse(made).body if getattr(f, "name", "") == "step")
    assert isinstance(own, ast.FunctionDef)
    last = own.body[-1]
    assert isinstance(last, ast.Return)
    assert last.value is not None
    return dict(leaves_of(last.value))


@pytest.mark.parametrize("seed", range(6))
def test_random(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    names = {
        "params": draw.choice(["params", "new_params", "w"]),
        "mu": draw.choice(["mu", "m"]),
        "others": draw.choice(["others", "x_new"]),
    }
    order = draw.sample([names["params"], "state", names["others"]], 3)
    fn = written(tmp_path / "case.py", STEP.format(returned=", ".join(order), **names))
    leaf = jax.ShapeDtypeStruct((4,), jnp.float32)
    own = dict.fromkeys(draw.sample(["up", "down", "head", "norm"], 3), leaf)
    tree = {"a": {"kernel": leaf, "bias": leaf}, **own}
    count = jax.ShapeDtypeStruct((), jnp.int32)
    state = {"count": count, "mu": tree}
    found = returned(text(fn, tree, state, leaf))
    assert len(set(found.values())) == len(found)
    for (number, *place), name in found.items():
        role = order[int(number)]
        assert name.endswith(place[-1])
        assert name.startswith("new_") == (role in ("params", "new_params", "state"))
        if place == ["count"]:
            assert name == "new_count"
        elif role == "state":
            assert name.startswith("new_mu_")
        elif role == "w":
            assert name.startswith("w_")


def test_the_users_own_names_stay(tmp_path: Path) -> None:
    """Unless several values that end under different keys have the same one."""
    source = (
        "def step(x, y):\n    loss = x.sum()\n    ratio = x / y\n    return {'a': loss, 'b': ratio}"
    )
    fn = written(tmp_path / "case.py", source)
    leaf = jax.ShapeDtypeStruct((4,), jnp.float32)
    assert returned(text(fn, leaf, leaf)) == {
        ("a",): "loss",
        ("b",): "ratio",
    }


def test_no_result_is_called_a_gradient(tmp_path: Path) -> None:
    """A name such as `d_x` says that the value is the gradient of `x`."""
    source = (
        "def step(x, y):\n    d = {'x': x + y, 'y': x - y}\n    e = {'x': x / y, 'd_y': x * y}\n"
        "    return d, e"
    )
    fn = written(tmp_path / "case.py", source)
    leaf = jax.ShapeDtypeStruct((4,), jnp.float32)
    names = returned(text(fn, leaf, leaf)).values()
    assert not [name for name in names if name.startswith("d_")]


def test_returned_variables(tmp_path: Path) -> None:
    def of(lines: str, results: Any) -> tuple[str, ...]:
        path = tmp_path / f"case{len([*tmp_path.iterdir()])}.py"
        return returned_variables(written(path, f"def step(x, y):\n{lines}"), results)

    assert of("    return x, y", (1, 2)) == ("x", "y")
    assert of("    return x, y + 1", (1, 2)) == ("x", "")
    assert of("    return x", 1) == ("x",)
    assert of("    return x", (1, 2)) == ()
    assert of("    if x: return y\n    return x", 1) == ()
    assert of("    def inner(): return y\n    return x", 1) == ("x",)
    assert returned_variables(lambda x: x, 1) == ()
