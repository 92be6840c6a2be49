"""Equal values are computed once, and so moved once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import emitted
import jax
import jax.numpy as jnp
import pytest

import shardwright as sw
from shardwright.codegen.partition.local.axes import cut_axes
from shardwright.codegen.partition.local.costs import tied
from shardwright.codegen.partition.local.once import _Once, with_equal_ops_once

MESH = sw.Mesh({"d": 4})
ROWS, WHOLE = '[{"d"}, {}]', "[{}, {}]"
X, W = jax.ShapeDtypeStruct((64, 32), "float32"), jax.ShapeDtypeStruct((32, 32), "float32")


def partitioned(fn: Any, *avals: Any, mode: str = "cheapest") -> sw.Partitioned:
    inputs = (ROWS, *(WHOLE if aval.ndim else "[]" for aval in avals[1:]))
    return sw.partition(fn, *avals, mesh=MESH, in_shardings=inputs, mode=mode)


def kinds(fn: Any, *avals: Any) -> Counter[str]:
    """How many ops of each kind the program has once equal ones are removed."""
    program = with_equal_ops_once(partitioned(fn, *avals).program, MESH)
    return Counter(op.kind for op in program.body.ops)


@pytest.mark.parametrize("mode", ["as_shardy", "cheapest"])
def test_a_mean_written_twice_moves_once(mode: str) -> None:
    def deviation(x: Any) -> Any:
        return (x - x.mean(0, keepdims=True)) / (x.std(0, keepdims=True) + 1)

    received = [each.received for each in partitioned(deviation, X, mode=mode).communications]
    assert received == [32 * 4 * 2 * 3 // 4] * 2  # the means, and the squares around them


def test_results_that_are_equal() -> None:
    program = partitioned(lambda x: (jnp.tanh(x).sum(0), jnp.tanh(x).sum(0)), X)
    assert len(program.communications) == 1
    assert len(program.local.body.results) == 2


def test_ops_that_differ_stay() -> None:
    """In a param, in a dtype, in an operand, in the sign of a zero."""
    assert kinds(lambda x: x.sum(0) + x.T.sum(1), X)["reduce_sum"] == 2
    narrow = lambda x: (x.astype("bfloat16"), x.astype("float16"))  # noqa: E731
    assert kinds(narrow, X)["convert_element_type"] == 2
    assert kinds(lambda x: (x + 0.0) * (x + -0.0), X)["add"] == 2
    assert kinds(lambda x: jnp.exp(x) * jnp.exp(x + 1), X)["exp"] == 2
    assert kinds(lambda x: jnp.exp(x) * jnp.exp(x), X)["exp"] == 1


def test_ops_that_grow_or_depend_on_no_argument_stay() -> None:
    wide = lambda x: (jnp.outer(x[0], x[0]), jnp.outer(x[0], x[0]))  # noqa: E731
    assert kinds(wide, X)["mul"] == kinds(wide, X)["reduce_sum"] + 1
    mask = lambda x: (x + jnp.tri(64, 32), x * jnp.tri(64, 32))  # noqa: E731
    assert kinds(mask, X)["iota"] == 4
    two = lambda x: (x.astype("float32").sum(0), x.astype("float32") * 2)  # noqa: E731
    assert kinds(two, jax.ShapeDtypeStruct((64, 32), "bfloat16"))["convert_element_type"] == 2


def test_indices_stay() -> None:
    """An index may count from the end for an update and for a slice."""

    def step(x: Any, at: Any) -> Any:
        row = jax.lax.dynamic_slice(x, (at, 0), (1, 32))
        return jax.lax.dynamic_update_slice(x, row + 1, (at, 0))

    assert kinds(step, X, jax.ShapeDtypeStruct((), "int32"))["select_n"] == 2


def test_a_barrier_keeps_values_apart() -> None:
    def apart(x: Any) -> Any:
        first, second = (jax.lax.optimization_barrier(jnp.exp(x)) for _ in range(2))
        return first.sum(0) + jnp.tanh(second).sum(0)

    found = kinds(apart, X)
    assert (found["exp"], found["optimization_barrier"]) == (1, 2)


def turned(x: Any, at: Any) -> Any:
    """An embedding of positions by sines and cosines of one angle, as in attention."""
    angle = at.astype("float32") / (100.0 ** (jnp.arange(16) / 16))
    sin, cos = jnp.sin(angle), jnp.cos(angle)
    a, b = x[:, :16], x[:, 16:]
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], axis=1)


@pytest.mark.parametrize("mode", ["as_shardy", "cheapest"])
def test_calls_of_one_function_keep_what_moves_nowhere(mode: str) -> None:
    """The angle is whole on every device, and each call has its own, so that both calls remain one
    function of the module; within one call it is computed once."""

    def both(x: Any, w: Any, at: Any) -> Any:
        return turned(x, at) @ w + turned(jnp.tanh(x) @ w, at)

    avals = X, W, jax.ShapeDtypeStruct((), "int32")
    assert kinds(both, *avals)["sin"] == 2
    assert kinds(lambda x, at: turned(x, at), X, avals[2])["sin"] == 1
    program = partitioned(both, *avals, mode=mode)
    assert sw.emit(program).module.count("turned(") == 3
    alone = jax.make_mesh((1,), ("d",))
    one = sw.partition(both, *avals, mesh=alone, mode=mode)
    assert emitted.fault(both, avals, one, alone) == ""


def test_bodies_of_loops() -> None:
    def turn(x: Any, w: Any) -> tuple[Any, None]:
        return x + jnp.tanh(w).sum() + jnp.tanh(w).sum(), None

    program = partitioned(lambda w, x: jax.lax.scan(turn, x, w)[0], X, W)
    (scan,) = (op for op in with_equal_ops_once(program.program, MESH).body.ops if op.bodies)
    assert Counter(op.kind for op in scan.bodies[0].ops)["tanh"] == 1


def test_layers_remain_alike() -> None:
    """Every layer masks by the same argument: no layer lacks its mask."""

    def layers(x: Any, w: Any, ids: Any) -> Any:
        for _ in range(4):
            there = (ids > 0) & (ids < 9)
            x = jnp.tanh(jnp.where(there, x, 0.0) @ w) * 2 + x
        return x

    program = partitioned(layers, X, W, jax.ShapeDtypeStruct((64, 1), "int32")).program
    after = with_equal_ops_once(program, MESH)
    axes = cut_axes(program, MESH)
    assert tied(after, axes) == tied(program, axes) != ()


def test_a_planted_fault_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without params in its key, a sum from the end would be the sum from the start."""
    fn = lambda x: (jax.lax.cumsum(x, 0), jax.lax.cumsum(x, 0, reverse=True))  # noqa: E731
    mesh = jax.make_mesh((1,), ("d",))

    def fault() -> str:
        return emitted.fault(fn, (X,), sw.partition(fn, X, mesh=mesh, mode="cheapest"), mesh)

    assert fault() == ""
    own = _Once._key
    monkeypatch.setattr(_Once, "_key", lambda self, op, place: own(self, op, place)[0::2])
    assert "off by" in fault()
