"""Modules for fewer devices than a TPU topology has, which XLA has no collectives for."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import ok

from shardwright.codegen.operations.bundles.compile import compile_bundles
from shardwright.codegen.operations.compile import targets
from shardwright.ir import InputError

TARGET = "v5e:2x4"
CONFIG = """\
[defaults]
dtype = "float32"
backends = ["jax_xla"]
mesh = "x=6"

[[reshard]]
name = "gathered"
shape = [48, 128]
source = '[{"x"}, {}]'
target = '[{}, {}]'

[[matmul]]
name = "multiplied"
lhs = { shape = [48, 128], sharding = '[{"x"}, {}]' }
rhs = { shape = [128, 128], sharding = '[{}, {}]' }
out = '[{}, {}]'
"""
REFUSED = (
    "XLA cannot compile a collective among this mesh's devices, the first of v5e:2x4, "
    "because their number does not divide the topology's"
)
ASIDE = "; it was compiled with the topology's last device in place of the mesh's last"


@pytest.mark.slow
def test_six_of_eight_devices(tmp_path: Path) -> None:
    try:
        targets.require(targets.parse_targets([TARGET]), saving=False)
    except InputError as error:
        pytest.skip(" ".join(str(error).split()))
    (tmp_path / "shardwright.toml").write_text(CONFIG)
    ok("emit", tmp_path / "shardwright.toml")
    reports = compile_bundles(tmp_path / "generated", [TARGET], time_limit=120)
    assert [report.name for report in reports] == ["gathered", "multiplied"]
    for report in reports:
        assert (report.verdict, report.detail) == ("ok", f"warns: {REFUSED}{ASIDE}")
        assert report.xla is not None
        assert report.xla.error == REFUSED
