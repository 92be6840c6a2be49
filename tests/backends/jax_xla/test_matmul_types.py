"""Matmuls of arrays whose types have their shardings: on meshes of Explicit axes, in programs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from matmuls import write_module

import shardwright as sw
from shardwright.codegen.moves.matmul.plan import plan_matmul

MESH = sw.Mesh({"x": 2, "y": 3})
SUB_AXES = sw.Mesh({"x": 4, "y": 2})


def matmul(lhs: str, rhs: str, out: str, mesh: sw.Mesh = MESH) -> sw.Matmul:
    return sw.Matmul("float32", ((6, 12), lhs), ((12, 6), rhs), out, mesh=mesh)


MATMULS = {
    "even": matmul("P('x', 'y')", "P('y')", "P('x', 'y')"),
    "padded": matmul("P('y')", "P('x', 'y')", "P(('y', 'x'))"),
    "terms": matmul('[{}, {"y"}], unreduced={"x"}', "P('y')", '[{}, {}], unreduced={"y"}'),
    "sub_axes": matmul('[{"x":(1)2}, {"y"}]', '[{"y"}, {"x":(2)2}]', '[{"x"}, {}]', SUB_AXES),
}

PROGRAM = """
import contextlib, importlib, sys
import jax, jax.numpy as jnp, numpy as np

for name in sys.argv[1:]:
    m = importlib.import_module(f"generated.{name}.jax_xla")
    of = m._LHS.mesh_of(jax.devices()[:len(m.IDS)])
    mesh = jax.make_mesh(
        of.devices.shape, of.axis_names, (jax.sharding.AxisType.Explicit,) * of.devices.ndim,
        devices=list(of.devices.flat),
    )
    rng, sides = np.random.default_rng(5), (m._LHS, m._RHS, m._OUT)
    shapes = [side.whole(shape) for side, shape in zip(sides, m._HOST.shapes)]
    a, b, d = (jnp.asarray(rng.integers(-3, 4, shape), m.DTYPE) for shape in shapes)
    padded = m.pad_lhs(a), m.pad_rhs(b)
    A, B = (jax.device_put(x, on(mesh)) for x, on in
            zip(padded, (m.lhs_sharding, m.rhs_sharding)))
    whole = jax.sharding.NamedSharding(mesh, jax.P())
    wanted = np.asarray(m.matmul(A, B, mesh))
    D = jax.device_put(jnp.asarray(rng.integers(-3, 4, wanted.shape), m.OUT_DTYPE),
                       m.out_sharding(mesh))

    def added(a, b, d):
        y = m.matmul(a, b, mesh)
        assert jax.typeof(y).sharding.spec == jax.typeof(d).sharding.spec, jax.typeof(y)
        return y + d

    loss = lambda a, b, d: (added(a, b, d) * d).sum()
    bare = lambda a, b, d: (m.matmul(a, b, of) * d).sum()
    right = jax.jit(jax.grad(bare, (0, 1)))(*padded, np.asarray(D))
    for context in (contextlib.nullcontext(), jax.set_mesh(mesh)):
        with context:
            for given in ((A, B), [jax.device_put(np.asarray(x), whole) for x in padded]):
                np.testing.assert_array_equal(jax.jit(added)(*given, D), wanted + np.asarray(D))
                found = jax.jit(jax.grad(loss, (0, 1)))(*given, D)
                for x, y, of_x in zip(found, right, given, strict=True):
                    np.testing.assert_array_equal(x, y)
    print(name, "ok")
"""


@pytest.mark.slow
def test_results_in_programs_have_their_types(tmp_path: Path) -> None:
    """Operands sharded as asked, and replicated; values and gradients; with the mesh set, and
    without."""
    for name, made in MATMULS.items():
        plan = plan_matmul(made, listed=0)
        case = write_module(plan, name, tmp_path / "generated", gradient=True)
        (case.module.parent / "__init__.py").write_text("")
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, *MATMULS],
        cwd=tmp_path,
        env={**os.environ, **flags},
        capture_output=True,
        text=True,
    )
    assert ran.stdout.splitlines() == [f"{name} ok" for name in MATMULS], ran.stderr[-3000:]
