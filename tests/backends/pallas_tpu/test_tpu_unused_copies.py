"""Kernels for a v5e make no copy that they do not use, of which Pallas complains."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from lone import alone

from shardwright.codegen.moves import plan
from shardwright.ir import Mesh, Reshard

pytest.importorskip("jax")


def test_pallas_complains_of_nothing(tmp_path: Path) -> None:
    """Over offsets that only some devices send over, so that copies are made only sometimes."""
    mesh = Mesh({"x": 2, "y": 4})
    sides = mesh.sharding('[{"x"}, {}]'), mesh.sharding('[{"y"}, {}]')
    made = plan(Reshard((1024, 1024), "bfloat16", *sides), "direct", topology="v5e:2x4")
    module = tmp_path / "pallas_tpu.py"
    module.write_text(alone(made, "pallas_tpu"))
    assert "_PROGRAM = Routed(" in module.read_text()
    own = {name: said for name, said in os.environ.items() if name != "XLA_FLAGS"}
    among = {**own, "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}  # other tests compile too
    found = subprocess.run([sys.executable, str(module)], env=among, capture_output=True, text=True)
    assert "the program is traced" in found.stdout
    assert found.stderr == ""
