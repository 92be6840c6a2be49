"""How few bytes `cheapest` does with, beside what others do and what is known to be possible."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from places import TESTS
from program_patterns import Pattern, patterns

import shardwright as sw

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
