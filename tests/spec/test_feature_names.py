"""Features: which backend has which, and where a request that no module can meet is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import run

import shardwright as sw
from shardwright.codegen.registry import DUTIES
from shardwright.codegen.spec.features import FEATURES
from shardwright.ir.errors import InputError

RESHARD = sw.Reshard((6, 6), "float32", "P('x')", "P(None, 'x')", mesh="x=2")
TABLE = """\
out = "made"
[defaults]
features = ["async"]
[[reshard]]
name = "columns"
mesh = "x=2"
shape = [6, 6]
dtype = "f32"
source = "P('x')"
target = "P(None, 'x')"
backends = ["jax_xla"]
"""


def test_every_feature_has_a_backend() -> None:
    offered = {name for duties in DUTIES.values() for name in duties.features}
    assert offered == {*FEATURES}


def test_defaults_are_for_the_backends_that_have_them(tmp_path: Path) -> None:
    """One line of [defaults] serves tables of different backends; a flag for all tables too."""
    (tmp_path / "shardwright.toml").write_text(TABLE)
    assert run("emit", tmp_path / "shardwright.toml").code == 0
    two = TABLE + TABLE[TABLE.index("[[") :].replace("columns", "rows").replace(
        "jax_xla", "triton_gpu"
    )
    (tmp_path / "shardwright.toml").write_text(two)
    assert run("plan", tmp_path / "shardwright.toml", "rows", "--feature", "symmetric").code == 0


def test_a_feature_that_no_module_can_have() -> None:
    with pytest.raises(InputError) as raised:
        sw.emit(RESHARD, backends=("pallas_tpu",), features=["async", "vmap"])
    assert str(raised.value) == (
        "features: modules of pallas_tpu do not support this feature\n"
        "got: async\n"
        "expected: one of gradient, start, vmap; or the backend triton_gpu"
    )


def test_a_feature_that_no_matmul_can_have() -> None:
    lhs, rhs = ((8, 16), '[{"x"}, {}]'), ((16, 8), '[{"x"}, {}]')
    matmul = sw.Matmul("bf16", lhs, rhs, '[{"x"}, {}]', mesh="x=2")
    with pytest.raises(InputError) as raised:
        sw.emit(matmul, features=["vmap"])
    assert str(raised.value) == (
        "features: modules of matmuls do not support this feature\ngot: vmap\nexpected: gradient"
    )


def test_a_feature_that_no_module_of_this_reshard_can_have(tmp_path: Path) -> None:
    """Said of a flag; and the page of a bundle does not list the feature."""
    flags = ["--mesh", "x=4", "--shape", "8x8", "--source", "P('x')", "--target", "P(None, 'x')"]
    flags += ["--name", "wide", "-o", str(tmp_path / "made"), "--backends", "pallas_tpu"]
    result = run("emit", *flags, "--dtype", "int64", "--feature", "start")
    assert (result.err, result.code) == (
        "error: --feature: no module of this reshard can have the feature start (docs/config.md)\n"
        "got: start\n"
        "expected: one of gradient, vmap\n",
        2,
    )
    half, other = '[{"x":(1)2}, {}]', '[{}, {"x":(1)2}]'
    for sides, offered in ((("P('x')", "P(None, 'x')"), True), ((half, other), False)):
        reshard = sw.Reshard((8, 8), "float32", *sides, mesh="x=4")
        bundle = sw.emit(reshard, backends=("triton_gpu",), features=["dtensor"])
        page = bundle.files("case")["README.md"]
        assert ("features: dtensor (triton_gpu)" in page) == offered
        assert ('"reshard_dtensor"' in bundle.files("case")["triton_gpu.py"]) == offered
