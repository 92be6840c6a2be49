"""How few bytes `cheapest` does with, beside what others do and what is known to be possible."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P
from places import TESTS
from program_patterns import Pattern, patterns

import shardwright as sw
from shardwright.codegen.partition.local import price_search

SIZES = """
import json, os, sys
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"
import models
import shardwright as sw

found = {}
for name in sys.argv[1:]:
    model, _, strategy = name.partition(":")
    fn, avals, inputs, outputs, mesh = models.case(model, strategy)
    found[name] = sw.partition(
        fn, *avals, mesh=mesh, in_shardings=inputs, out_shardings=outputs, mode="cheapest"
    ).bytes_received / 2**20
print(json.dumps(found))
"""
MOST = {
    "mlp_step:fsdp": 14.03,
    "mlp_step:fsdp+tp": 8.01,
    "layer_step:dp": 21.04,
    "layer_step:fsdp": 21.04,
    "layer_step:tp": 56.0,
    "layer_step:fsdp+tp": 17.0,
    "layer_step:tp+sp": 56.0,
    "layer_step:tp+sp+g": 56.0,
    "layer_step:dp+tp+sp+g": 27.0,
}
"""MiB in float32: the best that is known by hand."""


def sizes(*names: str) -> dict[str, float]:
    command = [sys.executable, "-c", SIZES, *names]
    env = {**os.environ, "PYTHONPATH": str(TESTS)}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def over(found: dict[str, float]) -> dict[str, float]:
    return {name: size for name, size in found.items() if size > MOST[name]}


def test_two_steps_do_with_what_is_known() -> None:
    assert over(sizes("mlp_step:fsdp+tp", "layer_step:tp+sp+g")) == {}


@pytest.mark.slow
def test_every_step_does_with_what_is_known() -> None:
    assert over(sizes(*MOST)) == {}


@pytest.mark.parametrize("pattern", list(patterns()), ids=lambda pattern: pattern.name)
def test_a_pattern_does_with_what_is_known(pattern: Pattern) -> None:
    program = sw.partition(
        pattern.fn,
        *pattern.avals,
        mesh=pattern.mesh,
        in_shardings=pattern.inputs,
        out_shardings=pattern.output,
        mode="cheapest",
    )
    assert program.bytes_received <= pattern.known


def test_terms_are_not_passed_on_by_what_is_not_linear() -> None:
    """The sum is made before the square, though later it would be smaller."""
    program = sw.partition(
        lambda x, w: ((x @ w) ** 2).sum(),
        *(next(patterns()).avals),
        mesh=sw.Mesh({"d": 8}),
        in_shardings=('[{}, {"d"}]', '[{"d"}, {}]'),
        mode="cheapest",
    )
    text = sw.emit(program).files("squared")["jax_spmd.py"]
    assert text.index("psum") < text.index("** 2")


def test_a_causal_mask_is_computed_wherever_it_is_used() -> None:
    """The batch is split; to split the mask instead, and gather it, would save only iotas."""

    def masked(queries: jax.Array, keys: jax.Array) -> jax.Array:
        mask = jnp.tril(jnp.ones((64, 64), bool))
        return jnp.where(mask, queries @ keys, 0.0).sum(axis=2)

    program = sw.partition(
        masked,
        *(jax.ShapeDtypeStruct((8, 64, 64), "float32"),) * 2,
        mesh=sw.Mesh({"x": 8}),
        in_shardings=("P('x')", "P('x')"),
        out_shardings="P(None, 'x')",
        mode="cheapest",
    )
    assert {each.op for each in program.communications} == {"all_to_all"}


def test_a_small_update_is_computed_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """If devices then receive fewer bytes: one gather of a bias's gradient instead of three of what
    is computed from it."""

    def step(params: Any, m: Any, v: Any, t: Any, x: Any) -> Any:
        c1, c2 = 1 - 0.9**t, 1 - 0.99**t

        def loss(p: Any) -> Any:
            return ((jnp.tanh(x @ p["w1"] + p["b"]) @ p["w2"]) ** 2).mean()

        grads = jax.grad(loss)(params)
        m = jax.tree.map(lambda a, g: 0.9 * a + 0.1 * g, m, grads)
        v = jax.tree.map(lambda a, g: 0.99 * a + 0.01 * g * g, v, grads)
        return (
            jax.tree.map(
                lambda w, a, b: w - 0.1 * (a / c1) / (jnp.sqrt(b / c2) + 1e-8), params, m, v
            ),
            m,
            v,
        )

    shapes = {"w1": (64, 256), "w2": (256, 64), "b": (256,), "t": (), "x": (8, 32, 64)}
    avals = {key: jax.ShapeDtypeStruct(shape, jnp.float32) for key, shape in shapes.items()}
    tree = {key: avals[key] for key in ("w1", "w2", "b")}
    specs = {"w1": P("d", "t"), "w2": P("t", "d"), "b": P()}

    def small() -> list[str]:
        program = sw.partition(
            *(step, tree, tree, tree, avals["t"], avals["x"]),
            mesh=sw.Mesh({"d": 4, "t": 2}),
            mode="cheapest",
            in_shardings=(specs, specs, specs, P(), P("d")),
            out_shardings=(specs, specs, specs),
        )
        return [each.head[5:] for each in program.communications if each.bytes < 1024]

    assert small() == ["reduce-scatter over d, 384 B", "all-gather over t, d, 896 B"]
    monkeypatch.setattr(price_search, "EXTRA", 0.0)
    assert small() == ["all-reduce over d, 768 B", *["all-gather over t, 512 B"] * 3]
