"""`bench.gpu_check`, dry: in the interpreter a wrong kernel is reported, and a right one is not."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

import shardwright as sw

pytest.importorskip("torch")
pytest.importorskip("triton")


ABSENT = ("jax", "ml_dtypes", "pytest", "rich", "scipy", "typer")
"""What a machine with torch and triton may lack."""


def checked(folder: Path, **variables: str) -> tuple[int, str, dict[str, bool | None]]:
    """The exit status, the output, and whether each case is right, of a dry check of the bundles in
    a folder."""
    for name in ABSENT:
        (folder / "absent" / name).mkdir(parents=True)
        (folder / "absent" / name / "__init__.py").write_text("raise ImportError(__name__)\n")
    paths = os.pathsep.join(map(str, (folder / "absent", ROOT, ROOT / ".typing")))
    done = subprocess.run(
        [sys.executable, "-m", "bench.gpu_check"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        env={
            **os.environ,
            "PYTHONPATH": paths,
            "OUT": str(folder / "out"),
            "GPU_CHECK_DRY": "1",
            "GPU_CHECK_WORKERS": "1",
            **variables,
        },
    )
    rows = json.loads((folder / "out" / "gpu_check.json").read_text())["rows"]
    return done.returncode, done.stdout + done.stderr, {row["name"]: row["ok"] for row in rows}


@pytest.mark.slow
def test_a_wrong_kernel_is_reported(tmp_path: Path) -> None:
    reshard = sw.Reshard((4, 4), "uint8", '[{"x"}, {}]', '[{}, {"x"}]', mesh="x=2")
    bundle = sw.emit(reshard, backends=("triton_gpu",))
    for name in ("right", "wrong"):
        bundle.write(tmp_path / "generated" / name)
    path = tmp_path / "generated" / "wrong" / "triton_gpu.py"
    text, count = re.subn(r"\ba0 = .*", "a0 = number * 0", path.read_text())
    assert count == 1
    path.write_text(text)  # All tiles come from the first sender and go to one place.
    code, said, right = checked(tmp_path, GPU_CHECK_PARTS="values", GPU_CHECK_NAMES="right,wrong")
    assert code == 1, said
    assert right == {
        "right": True,
        "wrong": False,
        "right, self-check": True,
        "wrong, self-check": False,
    }
    assert "ValueError: device 0, call 0: 4 wrong elements, the first at [4, 5, 6] at" in said
    table = (tmp_path / "out" / "gpu_check.md").read_text()
    assert "- **values**: 2 of 4 right." in table
    assert "(values: wrong)" in table


FEW = "transpose_2x3,group,random,fuzz,matmul gather 37,alone,all_to_all"


@pytest.mark.slow
def test_all_parts(tmp_path: Path) -> None:
    """A few cases of each part, with the bundles of `generated/`, are right."""
    (tmp_path / "generated").symlink_to(ROOT / "generated")
    code, said, right = checked(tmp_path, GPU_CHECK_RANDOM="4", GPU_CHECK_NAMES=FEW)
    assert code == 0, said
    assert {"group_0", "random_0", "transpose_2x3, self-check", "alone, 64 x 48 x 32"} < {*right}


@pytest.mark.slow
def test_no_gpu() -> None:
    """Without a GPU it says what runs everywhere."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.gpu_check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "GPU_CHECK_DRY": ""},
    )
    assert done.returncode == 1
    assert done.stderr == "torch finds no GPU; set GPU_CHECK_DRY=1 to run in Triton's interpreter\n"
