"""Where JAX's interpreter would wait for a thread forever, a module says so while it is traced."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from lone import alone
from matmul_kernels import COLUMNS, ROWS, gathers

import shardwright as sw
from shardwright.codegen.moves import plan
from shardwright.codegen.moves.matmul.plan import plan_matmul

SAID = (
    "interpret: got 4 XLA threads for 4 devices, but on arrays over 100 KiB (here {} bytes) the "
    "interpreter hangs without a spare thread; set XLA_FLAGS="
    "--xla_force_host_platform_device_count=5 before jax is imported\n"
)
TRACED = """
import os, runpy, sys
import jax
from jax.sharding import Mesh
reshard, few, matmul = (runpy.run_path(path) for path in sys.argv[1:])
def said(function, *shapes):
    x = [jax.ShapeDtypeStruct(shape, "float32") for shape in shapes]
    mesh = jax.make_mesh((4,), ("i",), (jax.sharding.AxisType.Auto,))
    try:
        jax.jit(lambda *x: function(*x, mesh, interpret=True)).trace(*x)
    except ValueError as error:
        print(error)
    else:
        print("traced")
def all_said():
    said(reshard["reshard"], reshard["SHAPE"])
    said(few["reshard"], few["SHAPE"])
    said(matmul["matmul"], matmul["LHS_SHAPE"], matmul["RHS_SHAPE"])
all_said()
jax.clear_caches()
os.environ["NPROC"] = "5"
all_said()
"""


def moved(rows: int) -> str:
    """The text of a module that moves float32[rows, 512]."""
    mesh = sw.Mesh({"i": 4})
    sides = mesh.sharding(ROWS), mesh.sharding(COLUMNS)
    return alone(plan(sw.Reshard((rows, 512), "float32", *sides), "direct"), "pallas_tpu")


def test_as_many_threads_as_devices_are_too_few_for_large_arrays(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    paths = [tmp_path / f"{name}.py" for name in ("reshard", "few", "matmul")]
    paths[0].write_text(moved(256))
    paths[1].write_text(moved(128))
    made = plan_matmul(gathers("float32", (256, 128, 128)), loop="both", listed=0)
    bundle = sw.emit(made, backends=("pallas_tpu",), single_file=True)
    paths[2].write_text(bundle.modules("as a test")["pallas_tpu.py"])
    devices = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    done = subprocess.run(
        [sys.executable, "-c", TRACED, *map(str, paths)],
        env={**os.environ, **devices, "NPROC": "2"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    few = SAID.format(131072) + "traced\n" + SAID.format(131072)
    assert done.stdout == few + "traced\n" * 3
