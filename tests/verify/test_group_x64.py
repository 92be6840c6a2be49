"""Groups of JAX run where a program has 64-bit types too, and `verify` runs them there."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import ok

from shardwright.codegen.operations.bundles.verify import verify

CONFIG = """\
[mesh]
here = "x=4"
there = '<["y"=2], device_ids=[4, 5]>'

[[group]]
name = "both"
mesh = "here"
target_mesh = "there"
dtype = "float32"
backends = ["pallas_tpu", "jax_xla"]
tensors = [
  {name = "a", shape = [8, 6], source = '[{"x"}, {}]', target = '[{}, {"y"}]'},
  {name = "b", shape = [8, 6], source = '[{"x"}, {}]', target = '[{}, {"y"}]'},
]
"""


@pytest.mark.slow
def test_a_group_with_and_without_x64(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    (tmp_path / "shardwright.toml").write_text(CONFIG)
    ok("emit", tmp_path / "shardwright.toml")
    reports = verify([tmp_path / "generated" / "both"])
    assert [report.verdict for report in reports] == ["ok"] * 4, reports
