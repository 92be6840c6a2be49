"""Values have the user's names: of variables, functions, named scopes and loops' parameters."""

from __future__ import annotations

import builtins
import keyword
import linecache
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import shardwright as sw

MESH = sw.Mesh({"d": 2})
ROWS = jax.ShapeDtypeStruct((8, 8), jnp.float32)


def names(fn: Callable[..., Any], *avals: Any) -> list[str]:
    """The names of the values that ops make, constants and what fits them to others left out."""
    program = sw.partition(fn, *avals or (ROWS, ROWS), mesh=MESH).program
    left_out = ("constant", "broadcast_in_dim")
    made = [op.results for op in program.body.ops if op.kind not in left_out]
    return [program.values[result].name for results in made for result in results]


def scaled(x: Any, by: Any) -> Any:
    total = (x * by).sum()
    return x / total


def test_variables_and_their_parts() -> None:
    def fn(x: Any, w: Any) -> Any:
        h = jnp.tanh(x @ w)
        h += 1.0
        first, second = h @ w, h * x
        return first - (last := jnp.exp(second)) * last

    assert names(fn) == ["h_dot", "h", "h_2", "first", "second", "last", "mul", "out"]


def test_what_functions_return() -> None:
    """By the variable of the caller; by the function inside an expression."""

    def fn(x: Any, w: Any) -> Any:
        y = scaled(x, w)
        return y + scaled(w, x)

    assert names(fn) == ["total_mul", "total", "y", "total_mul_2", "total_2", "scaled", "out"]


def test_attributes_items_and_mapped_leaves() -> None:
    class Held:
        pass

    def fn(x: Any, w: Any) -> Any:
        held, items = Held(), {}
        held.rows = jnp.sin(x)
        items["columns"] = jnp.cos(w)
        new = jax.tree.map(lambda a, b: a - 0.1 * b, [held.rows, x], [items["columns"], w])
        return [jnp.exp(each) for each in new]

    assert names(fn) == ["rows", "columns", "new_mul", "new", "new_mul_2", "new_2", "out", "out_2"]


def test_scopes_and_backward_passes() -> None:
    def fn(x: Any, w: Any) -> Any:
        with jax.named_scope("query"):
            y = jnp.tanh(x @ w)
        return jnp.sum(y * y)

    assert names(fn) == ["query_dot", "y", "mul", "out"]
    backward = names(jax.grad(fn, argnums=1))
    assert [name for name in backward if name.startswith("d_query")]
    assert not {"y", "out"} & {name.removeprefix("d_") for name in backward if name[:2] == "d_"}


def test_gradients_are_named_after_their_values() -> None:
    """Of parameters and of values that lines pass on."""

    def fn(p: Any, x: Any) -> Any:
        h = jnp.tanh(x @ p["w"] + p["b"])
        y = h @ p["v"]
        z = y @ p["k"] @ p["q"]
        return jnp.sum(z * y)

    p = {**dict.fromkeys("wvkq", ROWS), "b": jax.ShapeDtypeStruct((8,), jnp.float32)}
    x = jax.ShapeDtypeStruct((4, 8), jnp.float32)
    found = {*names(jax.value_and_grad(fn), p, x)}
    assert {"d_p_w", "d_p_b", "d_p_v", "d_p_k", "d_p_q", "d_h", "d_y", "d_z"} <= found
    assert not {"d_h_mul", "d_z_mul"} & found


def test_a_scope_names_its_value() -> None:
    def fn(x: Any, w: Any) -> Any:
        def query(x: Any) -> Any:
            return [jnp.tanh(x @ w)][0]

        with jax.named_scope("block"), jax.named_scope("query"):
            made = [query(x)]
        return made[0] + 1.0

    assert names(fn) == ["query_dot", "block", "out"]


def test_parameters_of_loops() -> None:
    def fn(x: Any, w: Any) -> Any:
        def turn(carry: Any, row: Any) -> Any:
            return (carry[0] + row, carry[1]), row * 2

        (total, _), rows = lax.scan(turn, (jnp.zeros(8), x.sum()), w)
        return total, rows

    program = sw.partition(fn, ROWS, ROWS, mesh=MESH).program
    (loop,) = [op for op in program.body.ops if op.kind == "scan"]
    body = loop.bodies[0]
    arguments = {program.values[v].name for v in body.arguments}
    assert arguments == {"carry_0", "carry_1", "w_2"}  # jax takes what is carried on first


@pytest.mark.parametrize(
    "name", ["lax", "jnp", "P", "max", "MESH", "PERMUTATION_1", "CONSTANTS", "print"]
)
def test_no_name_hides_one_of_the_module(name: str) -> None:
    """Nor a builtin; variables are local to the function of the module."""
    scope: dict[str, Any] = {"tanh": jnp.tanh}
    text = f"def fn(x, w):\n    {name} = tanh(x)\n    return {name} @ w\n"
    exec(compile(text, f"<{name}>", "exec"), scope)
    linecache.cache[f"<{name}>"] = (len(text), None, text.splitlines(keepends=True), f"<{name}>")
    program = sw.partition(scope["fn"], ROWS, ROWS, mesh=MESH)
    assert program.program.values[2].name == name
    module = sw.emit(program).files("fn")["jax_spmd.py"]
    line = next(line for line in module.splitlines() if "jnp.tanh(x)" in line)
    own = line.split()[0]
    assert own.lower().rpartition("_")[0] == name.lower() or own == name.lower()
    assert own not in {*dir(builtins), *keyword.kwlist, "lax", "jnp", "P", "MESH", "CONSTANTS"}


def test_other_code_keeps_the_kinds_of_ops() -> None:
    """What is not there to be read, as in `exec`."""
    scope: dict[str, Any] = {}
    exec("def fn(x, w):\n    h = x @ w\n    return h * 2.0\n", scope)
    assert names(scope["fn"]) == ["dot_general", "mul"]
