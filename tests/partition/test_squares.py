"""Squares of sums are made of sums: of terms that cancel they would come out below zero."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from sweeps import sampled

import shardwright as sw
from shardwright.codegen.partition.local import cheapest
from shardwright.codegen.partition.local.squares import Squares

MESH = sw.Mesh({"d": 8})
STEP = """
import importlib.util, json, sys
import jax, jax.numpy as jnp

spec = importlib.util.spec_from_file_location("jax_spmd", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
x = jax.random.normal(jax.random.key(0), (8, 4096))
x = x.at[-1].set(-x[:-1].sum(0))
given = (x, jnp.zeros(4096))[: int(sys.argv[2])]
found = module.program(jax.make_mesh((8,), ("d",)))(*given)
print(json.dumps(sum(int(jnp.isnan(each).sum()) for each in jax.tree.leaves(found))))
"""


def twice(x: jax.Array) -> jax.Array:
    """The root of a square, whose factors are computed twice, which barriers ask for."""
    first, second = (jax.lax.optimization_barrier(x) for _ in range(2))
    return jnp.sqrt(first.sum(0) * second.sum(0))


def second_moment(x: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A factor is scaled first, as optimizers do, and another use has the sum."""
    g = x.sum(0)
    v = 0.99 * v + 0.01 * g * jnp.maximum(g, g)
    return g / (jnp.sqrt(v) + 1e-8), v


def by_norm(x: jax.Array) -> jax.Array:
    """A gram matrix, which has no negative values on its diagonal."""
    g = x.sum(0).reshape(64, 64)
    return jnp.sqrt(jnp.where(jnp.eye(64) > 0, (0.5 * g) @ g.T, 0.0).sum(0))


FUNCTIONS = {each.__name__: each for each in (twice, second_moment, by_norm)}


def partitioned(name: str) -> sw.Partitioned:
    avals = (jax.ShapeDtypeStruct((8, 4096), "float32"), jax.ShapeDtypeStruct((4096,), "float32"))
    count = 2 if name == "second_moment" else 1
    given = ("P('d')", "P()")[:count]
    return sw.partition(
        FUNCTIONS[name],
        *avals[:count],
        mesh=MESH,
        mode="cheapest",
        in_shardings=given,
        out_shardings="P()" if count == 1 else ("P()", "P()"),
    )


def nans(program: sw.Partitioned, count: int, folder: Path) -> int:
    sw.emit(program).write(folder)
    done = subprocess.run(
        [sys.executable, "-c", STEP, str(folder / "jax_spmd.py"), str(count)],
        env={
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found: int = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", sampled(FUNCTIONS, "second_moment"))
def test_no_root_of_a_square_is_nan(name: str, tmp_path: Path) -> None:
    assert nans(partitioned(name), 2 if name == "second_moment" else 1, tmp_path) == 0


def test_without_the_rule_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: no square is found, no idea avoids it, and terms are multiplied by their sum."""
    monkeypatch.setattr(Squares, "found", lambda self: [])
    monkeypatch.setattr(cheapest, "seeds", lambda costs, bound: [lambda: None])
    assert nans(partitioned("twice"), 1, tmp_path) > 0


def test_a_sum_that_is_there_is_made_once() -> None:
    """Not again after each of several uses that are linear in it."""

    def step(x: jax.Array, m: jax.Array, p: jax.Array) -> tuple[jax.Array, ...]:
        g = x.sum(0)
        m = 0.9 * m + 0.1 * g
        return m, p - 0.01 * m, jnp.tanh(g)

    avals = (
        jax.ShapeDtypeStruct((8, 64), "float32"),
        *[jax.ShapeDtypeStruct((64,), "float32")] * 2,
    )
    found = sw.partition(
        step,
        *avals,
        mesh=MESH,
        mode="cheapest",
        in_shardings=("P('d')", "P()", "P()"),
        out_shardings=("P()", "P()", "P()"),
    ).communications
    assert sum(each.bytes for each in found) == 2 * 7 * 64 * 4 // 8
