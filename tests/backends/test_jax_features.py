"""JAX modules load what vmap, derivatives, padding and rounds take only where they have them."""

from __future__ import annotations

from pathlib import Path

import pytest
from sessions import session

import shardwright as sw

MESH = sw.Mesh({"x": 2, "y": 2})
ROWS = sw.Reshard((4, 8), "float32", MESH.sharding('[{"x"}, {}]'), MESH.sharding('[{}, {"x"}]'))

TRIED = """
from pathlib import Path
import jax, numpy as np
from shardwright.codegen.checks.load import load

m = load(Path(path))
mesh = jax.sharding.Mesh(np.reshape(jax.devices()[:4], (2, 2)), ("x", "y"))
x = np.arange(96, dtype=np.float32).reshape(3, 4, 8)
f = lambda x: m.reshard(x, mesh)
for way in (lambda f: f, jax.jit):
    for g in (jax.vmap(f), jax.grad(lambda x: f(x[0]).sum())):
        try:
            y = way(g)(x)
            print(np.array_equal(y, x), end=" ")
        except NotImplementedError as error:
            print(f"{error}.", end=" ")
"""
VMAP = 'this module cannot run under jax.vmap: emit it with features=("vmap",) (--feature vmap).'
GRADIENT = (
    "this module has no derivative: emit it with gradient=True (--gradient), or pass "
    "stop_gradient(x) to reshard."
)


@pytest.mark.parametrize(
    ("features", "said"), [((), f"{VMAP} {GRADIENT} "), (("vmap",), f"True {GRADIENT} ")]
)
def test_what_is_lacking_names_its_feature(
    features: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    pytest.importorskip("jax")
    sw.emit(ROWS, ("jax_xla",), features=features).write(tmp_path / "bundles" / "rows")
    path = tmp_path / "bundles" / "rows" / "jax_xla.py"
    assert session().run(TRIED, path=str(path)) == 2 * said


@pytest.mark.parametrize("backend", ["jax_xla", "pallas_tpu"])
def test_a_module_imports_what_it_has(backend: str, tmp_path: Path) -> None:
    """Padding only where a shard is padded, one operation only with vmap or derivatives."""
    uneven = sw.Reshard((5, 8), "float32", ROWS.source, ROWS.target)
    cases = {
        "plain": (ROWS, {}, set()),
        "batched": (ROWS, {"features": ("vmap",)}, {"jax_operation"}),
        "derived": (ROWS, {"gradient": True}, {"jax_operation"}),
        "padded": (uneven, {}, {"jax_padding"}),
    }
    for name, (reshard, asked, wanted) in cases.items():
        sw.emit(reshard, (backend,), **asked).write(tmp_path / name)
        text = (tmp_path / name / f"{backend}.py").read_text()
        extras = ("jax_operation", "jax_padding", "jax_terms", "jax_orders")
        assert {each for each in extras if f"_support.{each} import" in text} == wanted
