"""What self-checks of modules run, and how they end where they run nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from lone import alone
from matmul_kernels import gathers
from matmuls import write_module
from places import ROOT
from sweeps import sampled

import shardwright as sw
from shardwright.codegen.moves import plan
from shardwright.codegen.moves.matmul.plan import plan_matmul
from shardwright.ir import Mesh, Reshard

LINE = Mesh({"x": 2})


def ended(*words: str, cwd: Path) -> tuple[int, str, str]:
    """Status and output of a self-check."""
    done = subprocess.run(
        [sys.executable, *words], cwd=cwd, capture_output=True, text=True, timeout=300
    )
    return done.returncode, done.stdout.strip(), done.stderr.strip()


@pytest.mark.parametrize("backend", sampled(["triton_gpu", "pallas_tpu"], "triton_gpu"))
def test_nothing_that_did_not_run_is_ok(backend: str, tmp_path: Path) -> None:
    sides = LINE.sharding('[{"x"}, {}]'), LINE.sharding('[{}, {"x"}]')
    module = tmp_path / "module.py"
    module.write_text(alone(plan(Reshard((1024, 512), "float32", *sides), "direct"), backend))
    status, out, _ = ended(str(module), cwd=tmp_path)
    assert (status, out[:51]) == (3, "not run: 524288 elements are too many to move here;")


def test_a_store_behind_a_target_shard(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    sides = LINE.sharding('[{"x"}]'), Mesh({"x": 2}, [1, 0]).sharding('[{"x"}]')
    text = alone(plan(Reshard((6,), "float32", *sides), "direct"), "triton_gpu")
    assert text.count("columns=3,") == 1
    module = tmp_path / "module.py"
    module.write_text(text.replace("columns=3,", "columns=4,"))
    status, out, errors = ended(str(module), cwd=tmp_path)
    assert (status, out, errors) == (1, "", "a kernel stores past the end of a target shard")


@pytest.mark.parametrize("wrong", sampled([False, True], True))
def test_large_matmuls_run_scaled_down(wrong: bool, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    pairs = ((1024, 1000), '[{}, {"x"}]'), ((1000, 2048), '[{"x"}, {}]')
    given = sw.Matmul("float32", *pairs, '[{"x"}, {}]', mesh=LINE)
    write_module(plan_matmul(given, listed=0), "m", tmp_path, backend="triton_gpu")
    kernel = tmp_path / "m" / "triton_gpu.py"
    text = kernel.read_text()
    edited = text.replace(
        "total += tl.load(more, mask=inside)", "total -= tl.load(more, mask=inside)"
    )
    assert edited != text
    if wrong:
        kernel.write_text(edited)
    status, out, errors = ended("-m", f"{tmp_path.name}.m.triton_gpu", cwd=tmp_path.parent)
    if wrong:
        assert (status, out, errors) == (1, "", "device 0: wrong product")
    else:
        assert (status, errors) == (0, "")
        assert out.endswith(
            "every element of the product right, with shapes scaled down to (128, 64) by (64, 128)"
        )


@pytest.mark.parametrize("wrong", sampled([False, True], True))
def test_a_matmul_that_leaves_a_semaphore_nonzero(wrong: bool, tmp_path: Path) -> None:
    pytest.importorskip("jax")
    plan = plan_matmul(gathers("float32", (32, 128, 128)), loop="both", listed=0)
    write_module(plan, "m", tmp_path, backend="pallas_tpu")
    kernel = tmp_path / "m" / "pallas_tpu.py"
    text, awaited = kernel.read_text(), "each(3, lambda _, gone=gone: gone.wait())"
    assert text.count(awaited) == 1
    if wrong:
        kernel.write_text(text.replace(awaited, "pass"))
    status, _, errors = ended("-m", f"{tmp_path.name}.m.pallas_tpu", cwd=tmp_path.parent)
    if wrong:
        assert status == 1
        assert re.search(r"Semaphore \d+ has non-zero count", errors)
    else:
        assert (status, errors) == (0, "")


def test_modules_without_a_self_check(tmp_path: Path) -> None:
    """Relayouts, programs and models say what to run instead, and do not end like a success."""
    pytest.importorskip("jax")
    given = np.zeros((4, 4), np.float32)
    program = sw.partition(lambda x: x @ x, given, mesh="x=2", in_shardings="P('x')")
    sw.emit(program).write(tmp_path / "made" / "square")
    rules = [sw.Rules("x=2", {"*": spec}) for spec in ('[{"x"}, {}]', '[{}, {"x"}]')]
    moved = sw.sync(sw.Model({"w": (4, 4)}, "float32"), *rules)
    sw.emit(moved.plan, ("jax_xla",)).write(tmp_path / "made" / "weights")
    said = "this module has no self-check: run `shardwright verify FOLDER`"
    relayout = ROOT / "generated" / "packed_qkv" / "jax_xla.py"
    for words in (
        (str(relayout),),
        (str(tmp_path / "made" / "square" / "jax_spmd.py"),),
        ("-m", "made.square.jax_spmd"),
        ("-m", "made.weights.jax_xla"),
    ):
        assert ended(*words, cwd=tmp_path) == (2, "", said), words
