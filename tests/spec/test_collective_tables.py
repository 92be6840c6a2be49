"""`[[collective]]` tables: the reshards that they are, and mistakes in them."""

from __future__ import annotations

from pathlib import Path

import pytest
from strategies import exactly, message

import shardwright as sw
from shardwright.codegen.spec.config import read_config

TABLES = """
[[reshard]]
name = "first"
mesh = "x=4"
shape = [8]
dtype = "int8"
source = '[{"x"}]'
target = '[{}]'

[[collective]]
name = "gathered"
kind = "all_gather"
mesh = "x=4,y=2"
shape = [8, 6]
dtype = "float32"
source = '[{"x", "y"}, {}]'
axes = ["y"]

[[collective]]
name = "stacked"
kind = "all_gather"
mesh = "x=4"
shape = "8x6"
dtype = "float32"
source = '[{"x"}, {}]'
axes = ["x"]
tiled = false

[[collective]]
name = "scattered"
kind = "reduce_scatter"
mesh = "x=4"
shape = [8, 6]
dtype = "bfloat16"
source = '[{}, {}], unreduced={"x"}'
axes = ["x"]
dim = 1
backends = ["triton_gpu"]

[[collective]]
name = "turned"
kind = "permute"
mesh = "x=2"
shape = [8]
dtype = "int8"
source = '[{"x"}]'
axes = ["x"]
pairs = [[0, 1], [1, 0]]
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "c.toml"
    path.write_text(text)
    return path


def test_tables_are_reshards(tmp_path: Path) -> None:
    found = {each.name: each for each in sw.load_toml(written(tmp_path, TABLES))}
    said = {name: (each.shape, each.source, each.target) for name, each in found.items()}
    assert said == {
        "first": ((8,), '[{"x"}]', "[{}]"),
        "gathered": ((8, 6), '[{"x", "y"}, {}]', '[{"x"}, {}]'),
        "stacked": ((4, 2, 6), '[{"x"}, {}, {}]', "[{}, {}, {}]"),
        "scattered": ((8, 6), '[{}, {}], unreduced={"x"}', '[{}, {"x"}]'),
        "turned": ((8,), '[{"x"}]', '[{"x"}]'),
    }
    assert found["scattered"].backends == ("triton_gpu",)
    assert found["turned"].target_mesh == '<["x"=2], device_ids=[1, 0]>'


CONFIG = """
[defaults]
dtype = "bfloat16"
backends = ["triton_gpu"]
target = '[{"tp"}, {}]'
[mesh]
trainer = "fsdp=4,tp=2"

[[collective]]
name = "gathered"
kind = "all_gather"
mesh = "trainer"
shape = [8, 6]
source = '[{"fsdp"}, {}]'
axes = ["fsdp"]

[[group]]
name = "both"
members = ["gathered", "split"]

[[reshard]]
name = "split"
mesh = "trainer"
shape = [8, 6]
source = '[{}, {"tp"}]'
"""


def test_named_meshes_defaults_and_groups(tmp_path: Path) -> None:
    """A collective takes what other tables have in common, but for what follows from its kind."""
    config = read_config(written(tmp_path, CONFIG))
    assert [(each.name, each.mesh, each.dtype, each.target) for each in config.reshards] == [
        ("split", '<["fsdp"=4, "tp"=2]>', "bfloat16", '[{"tp"}, {}]'),
        ("gathered", '<["fsdp"=4, "tp"=2]>', "bfloat16", "[{}, {}]"),
    ]
    assert config.groups[0].members == ("gathered", "split")


KEYS = (
    "name, mesh, shape, dtype, source, source_split, backends, strategy, topology, memory_limit, "
    "gradient, single_file, features, collective_id, kind, axes, dim, tiled, pairs"
)
MISTAKES = (
    (
        'axes = ["y"]',
        'axes = ["x"]',
        """
        c.toml, line 17, collective 'gathered', axes: the axes must be the last axes of a dimension
          axes = ["x"]
          ^^^^^^^^^^^^
        got: "x", for [{"x", "y"}, {}]
        expected: "y", or "x" and "y", if a dimension has {"x", "y"}
        """,
    ),
    (
        'kind = "permute"',
        'kind = "shift"',
        """
        c.toml, line 42, collective 'turned', kind: no such collective
          kind = "shift"
                  ^^^^^
        got: shift
        expected: one of all_gather, reduce_scatter, all_reduce, all_to_all, slice, permute
        """,
    ),
    (
        'kind = "all_gather"',
        'kind = "all_gathr"',
        """
        c.toml, line 12, collective 'gathered', kind: no such collective; did you mean all_gather?
          kind = "all_gathr"
                  ^^^^^^^^^
        got: all_gathr
        expected: one of all_gather, reduce_scatter, all_reduce, all_to_all, slice, permute
        """,
    ),
    (
        "dim = 1",
        "dims = 1",
        """
        c.toml, line 37, collective 'scattered', dims: unknown key; did you mean dim?
          dims = 1
          ^^^^
        got: dims
        expected: one of {keys}
        """,
    ),
    (
        'mesh = "x=4,y=2"',
        'mesh = "trainer"',
        """
        c.toml, line 13, collective 'gathered', mesh: no mesh with this name
          mesh = "trainer"
                  ^^^^^^^
        got: trainer
        expected: the axes of a mesh, as x=2,y=3
        """,
    ),
    (
        "dim = 1",
        "pairs = [[0, 1]]",
        """
        c.toml, line 37, collective 'scattered', pairs: reduce_scatter does not take this key
          pairs = [[0, 1]]
          ^^^^^^^^^^^^^^^^
        got: [[0, 1]]
        expected: no pairs
        """,
    ),
    (
        "tiled = false",
        "tiled = 0",
        """
        c.toml, line 27, collective 'stacked', tiled: tiled must be true or false
          tiled = 0
          ^^^^^^^^^
        got: 0
        expected: true or false
        """,
    ),
    (
        "pairs = [[0, 1], [1, 0]]",
        "pairs = [0, 1]",
        """
        c.toml, line 48, collective 'turned', pairs: pairs must be a list of pairs of coordinates
          pairs = [0, 1]
          ^^^^^^^^^^^^^^
        got: [0, 1]
        expected: [[0, 1], [1, 0]]
        """,
    ),
)


@pytest.mark.parametrize("number", range(len(MISTAKES)))
def test_mistakes(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words, instead, expected = MISTAKES[number]
    assert words in TABLES
    written(tmp_path, TABLES.replace(words, instead))
    monkeypatch.chdir(tmp_path)
    assert message(lambda: sw.load_toml("c.toml")) == exactly(expected.replace("{keys}", KEYS))
