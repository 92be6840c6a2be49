"""`bench.tpu_check`, dry: on CPU devices a wrong module is reported, and a right one is not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

import shardwright as sw

pytest.importorskip("jax")


def checked(folder: Path, **variables: str) -> tuple[int, str, dict[str, bool | None]]:
    """The exit status, the output, and whether each case is right, of a dry check of the bundles in
    a folder."""
    paths = os.pathsep.join((str(ROOT), str(ROOT / ".typing")))
    given = {"PYTHONPATH": paths, "OUT": str(folder / "out"), "TPU_CHECK_DRY": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "bench.tpu_check"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, **given, **variables},
    )
    said = done.stdout + done.stderr
    path = folder / "out" / "tpu_check.json"
    assert path.exists(), said
    rows = json.loads(path.read_text())["rows"]
    return done.returncode, said, {f"{row['part']}: {row['name']}": row["ok"] for row in rows}


@pytest.mark.slow
def test_a_wrong_module_is_reported(tmp_path: Path) -> None:
    for name, devices in (("right", 2), ("wrong", 2), ("large", 3)):
        reshard = sw.Reshard((6, 6), "int16", "P('x', None)", "P(None, 'x')", mesh=f"x={devices}")
        sw.emit(reshard, backends=("jax_xla",)).write(tmp_path / "generated" / name)
    path = tmp_path / "generated" / "wrong" / "jax_xla.py"
    text, start = path.read_text(), "def _exchange(x):\n"
    assert text.count(start) == 1
    path.write_text(text.replace(start, f"{start}    x = x[::-1]\n"))
    code, said, right = checked(tmp_path, TPU_CHECK_DEVICES="2")
    assert code == 1, said
    assert right == {
        "values: right, jax_xla": True,
        "values: wrong, jax_xla": False,
        "values: large, jax_xla": None,
        "times: right, jax_xla": True,
        "times: wrong, jax_xla": True,
        "times: large, jax_xla": None,
    }
    assert "wrong, jax_xla: ValueError: device 0, call 0: " in said
    table = (tmp_path / "out" / "tpu_check.md").read_text()
    assert "- **values**: 1 of 2 right, 1 left out." in table
    assert "- needs more than the 2 devices here (values: large, jax_xla; times:" in table


FEW = "transpose_2x3,reduce_scatter_2x4,uneven,trainer,gradient,matmul_batch,all_to_all"


@pytest.mark.slow
def test_kernels(tmp_path: Path) -> None:
    """Some bundles of `generated/`, kernels in interpret mode, are right."""
    (tmp_path / "generated").symlink_to(ROOT / "generated")
    code, said, right = checked(tmp_path, TPU_CHECK_PARTS="values", TPU_CHECK_NAMES=FEW)
    assert code == 0, said
    assert right["values: transpose_2x3, pallas_tpu"]
    assert right["values: matmul_batch_uneven, jax_xla"]


@pytest.mark.slow
def test_no_tpu() -> None:
    """Without a TPU it says what runs everywhere."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.tpu_check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "TPU_CHECK_DRY": ""},
    )
    assert done.returncode == 1
    said = "JAX finds no TPU, only cpu; set TPU_CHECK_DRY=1 to run on CPU devices\n"
    assert done.stderr.endswith(said)
