"""`[[matmul]]` tables: the matmuls that they are, mistakes in them, and what is emitted of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from strategies import exactly, message

import shardwright as sw
from shardwright.codegen.operations.bundles.check import check
from shardwright.codegen.spec.config import read_config
from shardwright.codegen.spec.matmul import FIELDS, describe_matmul

TABLES = """
[mesh]
book = "x=4,y=2"

[defaults]
dtype = "bfloat16"
backends = ["triton_gpu"]

[[reshard]]
name = "first"
mesh = "x=4"
shape = [8]
source = '[{"x"}]'
target = '[{}]'

[[matmul]]
name = "up"
mesh = "book"
lhs = {shape = [8, 16], sharding = '[{"x"}, {"y"}]'}
rhs = {shape = "16x32", sharding = "P('y')"}
out = '[{"x"}, {}]'
loop = "never"

[[matmul]]
name = "down"
mesh = "book"
dtype = "int8"
lhs = {shape = [8, 16], sharding = '[{"x"}, {"y"}]'}
rhs = {shape = [16, 32], sharding = '[{}, {}]'}
out = '[{"x"}, {}]'
out_dtype = "int32"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "shardwright.toml"
    path.write_text(text)
    return path


def test_tables_are_matmuls(tmp_path: Path) -> None:
    config = read_config(written(tmp_path, TABLES))
    assert config.names() == ("first", "up", "down")
    up, down = config.matmuls
    assert up.matmul() == sw.Matmul(
        "bfloat16", ((8, 16), "P('x','y')"), ((16, 32), "P('y')"), "P('x')", mesh="x=4,y=2"
    )
    assert (up.backends, up.loop, up.out_dtype) == (("jax_xla",), "never", "bfloat16")
    assert (down.out_dtype, down.matmul().sum_dtype) == ("int32", "int32")


def test_a_description_is_read_from_what_it_writes(tmp_path: Path) -> None:
    for each in read_config(written(tmp_path, TABLES)).matmuls:
        assert describe_matmul(each.to_dict()) == each


LONG = "the last dimension of lhs and the second to last of rhs must have the same extent"
WRONG = [
    (
        ('shape = "16x32"', 'shape = "15x32"'),
        """
        shardwright.toml, line 20, matmul 'up', rhs: {long}
          rhs = {shape = "15x32", sharding = "P('y')"}
          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        got: lhs 8x16 and rhs 15x32: 16 and 15 differ
        expected: an rhs of 16x32, or a different lhs
        """,
    ),
    (
        ('loop = "never"', 'lop = "never"'),
        """
        shardwright.toml, line 22, matmul 'up', lop: unknown key; did you mean loop?
          lop = "never"
          ^^^
        got: lop
        expected: one of {keys}
        """,
    ),
    (
        ("""rhs = {shape = "16x32", sharding = "P('y')"}""", "rhs = [16, 32]"),
        """
        shardwright.toml, line 20, matmul 'up', rhs: rhs must be a table with a shape and a sharding
          rhs = [16, 32]
          ^^^^^^^^^^^^^^
        got: [16, 32]
        expected: rhs = {shape = [16, 32], sharding = '[{}, {"y"}]'}
        """,
    ),
    (
        ("""rhs = {shape = "16x32", sharding = "P('y')"}""", "rhs_shape = [16, 32]"),
        """
        shardwright.toml, line 20, matmul 'up', rhs_shape: unknown key
          rhs_shape = [16, 32]
          ^^^^^^^^^
        got: rhs_shape
        expected: rhs = {shape = [16, 32], sharding = '[{}, {"y"}]'}
        """,
    ),
    (
        ("""rhs = {shape = "16x32", sharding = "P('y')"}""", ""),
        """
        shardwright.toml, line 16, matmul 'up', rhs: missing
          [[matmul]]
          ^^^^^^^^^^
        expected: rhs = {shape = [16, 32], sharding = '[{}, {"y"}]'}
        """,
    ),
    (
        ('name = "down"', 'name = "first"'),
        """
        shardwright.toml, line 25, name: two operations must not have the same name
          name = "first"
                  ^^^^^
        got: first
        expected: a different name for each
        """,
    ),
]


@pytest.mark.parametrize(("change", "wanted"), WRONG)
def test_mistakes(
    change: tuple[str, str], wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert change[0] in TABLES
    written(tmp_path, TABLES.replace(*change))
    said = exactly(wanted).replace("{long}", LONG).replace("{keys}", ", ".join(FIELDS))
    assert message(lambda: read_config("shardwright.toml")) == said


def test_a_bundle_is_written_and_checked(tmp_path: Path) -> None:
    matmul = read_config(written(tmp_path, TABLES)).matmuls[0].matmul()
    bundle = sw.emit(matmul)
    files = bundle.write(tmp_path / "generated" / "up")
    assert {path.name for path in files if path.parent.name == "up"} == {
        *("README.md", "__init__.py", "jax_xla.py", "matmul.svg", "plan.json"),
    }
    assert check(tmp_path / "generated") == ()
    module = tmp_path / "generated" / "up" / "jax_xla.py"
    module.write_text(module.read_text().replace("jnp.matmul(a, b,", "jnp.matmul(a, 2 * b,"))
    (problem,) = check(tmp_path / "generated")
    assert (problem.path, problem.rule) == ("up/jax_xla.py", "edited by hand")


def test_a_backend_that_does_not_multiply_such_elements() -> None:
    matmul = sw.Matmul("int16", ((2, 2), "P()"), ((2, 2), "P()"), "P()", mesh="x=2")
    assert message(lambda: sw.emit(matmul, backends=("triton_gpu",))) == (
        "dtype: triton_gpu cannot multiply this dtype\n"
        "got: int16\n"
        "expected: one of bfloat16, float16, float32, int8"
    )


def test_what_is_for_reshards_is_refused() -> None:
    matmul = sw.Matmul("int8", ((2, 2), "P()"), ((2, 2), "P()"), "P()", mesh="x=2")
    assert message(lambda: sw.plan(matmul, "basis")) == (  # type: ignore[call-overload]
        "strategy: a matmul takes no strategy\ngot: basis\nexpected: no strategy, or a Reshard"
    )


def test_gradients_that_there_are_none_of() -> None:
    sides = ((2, 2), "P(None,'x')"), ((2, 2), "P('x')"), "P()"
    integers = sw.Matmul("int8", *sides, "int32", mesh="x=2")
    assert message(lambda: sw.emit(integers, gradient=True)) == (
        "gradient: only floating dtypes have gradients\n"
        "got: int8\n"
        "expected: a floating dtype, such as bfloat16, or no gradient"
    )
    largest = replace(sw.Mesh({"x": 2}).sharding('[{}, {}], unreduced={"x"}'), operator="max")
    extremum = sw.Matmul("float32", ((2, 2), largest), ((2, 2), "P()"), "P()")
    assert message(lambda: sw.emit(extremum, gradient=True)) == (
        "gradient: a partial maximum or minimum has no derivative where values are equal\n"
        f"got: lhs {largest}\n"
        "expected: unreduced=sum{…}, or no gradient"
    )
