"""`shardwright plan FILE` of a file whose operations are one group."""

from __future__ import annotations

from pathlib import Path

from commands import ok

CONFIG = """\
[mesh]
here = "x=4"

[[group]]
name = "weights"
mesh = "here"
dtype = "float32"
tensors = [
  {name = "a", shape = [8, 8], source = '[{"x"}, {}]', target = '[{}, {"x"}]'},
  {name = "b", shape = [8, 8], source = '[{"x"}, {}]', target = '[{}, {"x"}]'},
]
"""


def test_the_group_is_planned(tmp_path: Path) -> None:
    """Without its name too."""
    file = tmp_path / "weights.toml"
    file.write_text(CONFIG)
    said = ok("plan", file)
    assert "2 tensors, " in said
    assert said == ok("plan", file, "--name", "weights")
