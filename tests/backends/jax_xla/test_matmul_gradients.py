"""Gradients of matmuls, whose plans are matmuls too: against numpy, and beside JAX's own."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from matmuls import random_matmul, verified, write_module
from running import reports_of
from sweeps import sampled, swept

import shardwright as sw
from shardwright.codegen.moves.matmul.plan import plan_matmul
from shardwright.codegen.operations.emit.matmul import backward_matmuls

MESH = sw.Mesh({"x": 2, "y": 3})
FLOATS = ("float32", "bfloat16", "float16", "float8_e4m3fn")


def matmul(
    lhs: str, rhs: str, out: str, dtype: str = "float32", out_dtype: str | None = None
) -> sw.Matmul:
    return sw.Matmul(dtype, ((7, 12), lhs), ((12, 5), rhs), out, out_dtype, mesh=MESH)


UNREDUCED = {
    "lhs": matmul('[{"y"}, {}], unreduced={"x"}', "P()", "P('y')"),
    "rhs": matmul("P('y')", '[{}, {"y"}], unreduced={"x"}', "P(None, 'x')"),
    "out": matmul("P(None, 'x')", "P('x', 'y')", '[{}, {"y"}], unreduced={"x"}'),
    "all": matmul(
        '[{}, {}], unreduced={"x"}', '[{}, {}], unreduced={"y"}', '[{}, {}], unreduced={"x", "y"}'
    ),
    "wide": matmul("P('x', 'y')", "P('y')", "P('x')", "bfloat16", "float32"),
    "wide, unreduced": matmul(
        '[{}, {"y"}], unreduced={"x"}', "P('y')", '[{}, {}], unreduced={"y"}', "bf16", "float32"
    ),
}


def test_backward_matmuls_have_replicas_where_there_are_terms() -> None:
    lhs, rhs = backward_matmuls(UNREDUCED["wide, unreduced"])
    assert (lhs.dtype, lhs.out_dtype) == ("float32", "float32")
    assert [str(lhs.sharding(side)) for side in ("lhs", "rhs", "out")] == [
        *("[{}, {}]", '[{}, {"y"}]', '[{}, {"y"}]'),
    ]
    assert [str(rhs.sharding(side)) for side in ("lhs", "rhs", "out")] == [
        *('[{"y"}, {}], unreduced={"x"}', "[{}, {}]", '[{"y"}, {}]'),
    ]


@pytest.mark.parametrize("name", sampled(UNREDUCED, "all", "wide, unreduced"))
def test_gradients_where_terms_are_or_the_result_is_of_another_dtype(
    name: str, tmp_path: Path
) -> None:
    for _, _, report in verified([UNREDUCED[name]], tmp_path / "generated", gradient=True):
        assert report.verdict == "ok", report.detail
        assert report.checks[-1] == "derivative"


def random_floats(rng: random.Random, batch: int) -> sw.Matmul:
    """A random matmul of floats, with sides that are unreduced, some results of sums' dtype."""
    made, dtype = random_matmul(rng, batch), rng.choice(FLOATS)
    given = (made.lhs.shape, made.lhs.sharding), (made.rhs.shape, made.rhs.sharding)
    return sw.Matmul(dtype, *given, made.out, rng.choice((None, "float32")))


@pytest.mark.parametrize("seed", swept(range(8), 8))
def test_random_gradients(seed: int, tmp_path: Path) -> None:
    rng = random.Random(700 + seed)
    matmuls = [random_floats(rng, n % 2) for n in range(4)]
    for made, _, report in verified(matmuls, tmp_path / "generated", gradient=True):
        assert report.verdict == "ok", f"{made}: {report.detail}"


FAULTS = [
    ("jax_xla_lhs_backward.py", "jnp.matmul(a, b", "jnp.matmul(2 * a, b"),
    ("jax_xla_rhs_backward.py", "without_padding(a, b, 7 -", "without_padding(a, b, 9 -"),
    ("../_support/jax_matmul_gradient.py", "shard[0], mesh", "shard.sum(0) * 0, mesh"),
]


@pytest.mark.parametrize(("file", "right", "wrong"), FAULTS)
def test_planted_faults_are_found(file: str, right: str, wrong: str, tmp_path: Path) -> None:
    made = matmul("P('x')", '[{}, {}], unreduced={"y"}', '[{"x"}, {}], unreduced={"y"}')
    case = write_module(plan_matmul(made, listed=0), "m", tmp_path / "generated", gradient=True)
    path = case.module.parent / file
    assert right in path.read_text(), path.read_text()
    path.write_text(path.read_text().replace(right, wrong))
    right_forward, report = reports_of("jax_xla", [replace(case, derivative=False), case])
    assert right_forward.verdict == "ok"
    assert report.verdict == "failed"
    assert "the cotangent of" in report.detail


BESIDE_JAX = """
import importlib, json, sys
import jax, jax.numpy as jnp, numpy as np

def own(a, b, kept):
    value = lambda x, terms: x.sum(axis=0, dtype=x.dtype) if terms else x
    lhs, rhs = (value(x, each) for x, each in zip((a, b), kept))
    return jnp.matmul(lhs, rhs, preferred_element_type=dtype)

for name in sys.argv[1:]:
    module = importlib.import_module(f"generated.{name}.jax_xla")
    mesh = module._LHS.mesh_of(jax.devices())
    rng, dtype = np.random.default_rng(5), jnp.dtype(module.OUT_DTYPE)
    sides = module._LHS, module._RHS, module._OUT
    shapes = [s.whole(shape) for s, shape in zip(sides, module._HOST.shapes)]
    a, b = (jnp.asarray(rng.integers(-3, 4, s), module.DTYPE) for s in shapes[:2])
    weights = jnp.asarray(rng.integers(-2, 3, module.OUT_SHAPE), dtype)
    terms = [s.terms for s in sides]

    def loss(a, b):
        c = module.unpad(module.matmul(module.pad_lhs(a), module.pad_rhs(b), mesh))
        c = c.sum(axis=0) if terms[2] else c
        return (c * weights).sum()

    def wanted(a, b):
        return (own(a, b, terms) * weights).sum()

    for jitted in (False, True):
        wrap = jax.jit if jitted else lambda f: f
        found = wrap(jax.value_and_grad(loss, (0, 1)))(a, b)
        right = wrap(jax.value_and_grad(wanted, (0, 1)))(a, b)
        for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(right), strict=True):
            assert x.dtype == y.dtype and x.shape == y.shape, (name, x.dtype, y.dtype)
            np.testing.assert_array_equal(np.asarray(x, "f8"), np.asarray(y, "f8"), name)
    print(name, "ok")
"""


@pytest.mark.slow
def test_gradients_are_those_of_jax(tmp_path: Path) -> None:
    """A loss of the sum of terms, differentiated by `jax.grad` through the module and through
    `jnp.matmul`; of integers, so that both are exact."""
    names = []
    for number, made in enumerate(UNREDUCED.values()):
        plan = plan_matmul(made, listed=0)
        case = write_module(plan, f"m{number}", tmp_path / "generated", gradient=True)
        (case.module.parent / "__init__.py").write_text("")
        names.append(case.name)
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=6", "JAX_PLATFORMS": "cpu"}
    ran = subprocess.run(
        [sys.executable, "-c", BESIDE_JAX, *names],
        cwd=tmp_path,
        env={**os.environ, **flags},
        capture_output=True,
        text=True,
    )
    assert ran.stdout.splitlines() == [f"{name} ok" for name in names], ran.stderr
