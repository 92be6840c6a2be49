"""Descriptions: canonical texts, the command that makes them again, TOML files, their errors."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import exactly, fields, meshes, message

from shardwright.codegen.operations.emit.reshard import emit_described
from shardwright.codegen.spec.config import load_toml
from shardwright.codegen.spec.description import LONGEST_COMMAND, Description, describe
from shardwright.ir.errors import InputError
from shardwright.ir.mesh import Mesh
from shardwright.ir.reshard import Reshard
from shardwright.ir.sharding import Sharding

TRANSPOSE = {
    "name": "transpose_2x3",
    "mesh": "x=2,y=3",
    "shape": "6x6",
    "dtype": "float32",
    "source": '[{"x"}, {"y"}]',
    "target": '[{"y"}, {"x"}]',
}
TABLE = """\
[[reshard]]
name = "transpose_2x3"
mesh = "x=2,y=3"
shape = [6, 6]
dtype = "float32"
source = '[{"x"}, {"y"}]'  # rows over x
target = '[{"y"}, {"x"}]'
"""


def described(**changes: object) -> Description:
    return describe({**TRANSPOSE, **changes})


def described_by(command: str) -> Description:
    """What the flags of a command describe."""
    program, verb, *words = shlex.split(command)
    assert (program, verb) == ("shardwright", "emit")
    flags = zip(words[::2], words[1::2], strict=True)
    return describe({flag.removeprefix("--").replace("-", "_"): text for flag, text in flags})


def test_texts_become_canonical() -> None:
    spaced = described(mesh='{<["x" = 2,"y"=3]>}', shape="6, 6", source='[ {"x"},{"y"} ]')
    assert spaced == described()
    assert spaced.mesh == '<["x"=2, "y"=3]>'
    assert spaced.shape == (6, 6)
    assert spaced.source == '[{"x"}, {"y"}]'


def test_a_second_mesh_that_is_the_first_is_left_out() -> None:
    assert described(target_mesh="x=2,y=3").target_mesh is None
    other = described(target_mesh='<["x"=2, "y"=3], device_ids=[5, 4, 3, 2, 1, 0]>')
    assert other.target_mesh == '<["x"=2, "y"=3], device_ids=[5, 4, 3, 2, 1, 0]>'


def test_the_command() -> None:
    assert described().command() == (
        "shardwright emit --mesh x=2,y=3 --shape 6x6 --dtype float32 "
        """--source '[{"x"}, {"y"}]' --target '[{"y"}, {"x"}]' """
        "--name transpose_2x3"
    )


def test_the_command_states_what_is_not_the_default() -> None:
    command = described(
        target_mesh='<["x"=2, "y"=3], device_ids=[6, 7, 8, 9, 10, 12]>',
        source_split="nested",
        backends=["triton_gpu"],
        strategy="direct",
    ).command("out put")
    assert command == (
        "shardwright emit --mesh x=2,y=3 --shape 6x6 --dtype float32 "
        """--source '[{"x"}, {"y"}]' --target '[{"y"}, {"x"}]' """
        """--target-mesh '<["x"=2, "y"=3], device_ids=[6, 7, 8, 9, 10, 12]>' """
        "--source-split nested --backends triton_gpu --strategy direct "
        "--name transpose_2x3 -o 'out put'"
    )


def test_a_command_too_long_for_a_shell_goes_through_the_manifest() -> None:
    mesh = Mesh({"x": 4096}, device_ids=range(4096)[::-1])
    command = described(mesh=str(mesh), source='[{"x"}, {}]', target='[{}, {"x"}]').command()
    assert command == (
        "shardwright emit manifest.json --name transpose_2x3  # in the parent folder"
    )


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_a_description_survives_json_and_the_command_line(data: st.DataObject) -> None:
    source_mesh, target_mesh = data.draw(meshes()), data.draw(meshes())
    rank = data.draw(st.integers(0, 4))
    dims, replicated, _ = data.draw(fields(source_mesh, rank))
    source = Sharding(source_mesh, dims, replicated)
    dims, replicated, _ = data.draw(fields(target_mesh, rank))
    target = Sharding(target_mesh, dims, replicated)
    shape = tuple(data.draw(st.lists(st.integers(1, 40), min_size=rank, max_size=rank)))
    split = data.draw(st.sampled_from(["flat", "nested"]))
    reshard = Reshard(shape, "int8", source, target, target_split=split)
    description = Description.of(reshard, "case", ("pallas_tpu",), "direct")
    assert description.reshard() == reshard
    assert describe(description.to_dict()) == description
    command = description.command()
    assert len(command) <= LONGEST_COMMAND
    assert described_by(command) == description


@pytest.mark.parametrize("name", ["2x3", "a-b", "a b", "", "class", "../up", "a.b"])
def test_names_are_identifiers(name: str) -> None:
    assert message(lambda: described(name=name)) == (
        "name: the name of a bundle must be a Python identifier\n"
        f"got: {name or repr(name)}\n"
        "expected: letters, digits and underscores, not starting with a digit; not a keyword"
    )


@pytest.mark.parametrize("name", ["jax", "numpy", "queue", "__init__"])
def test_names_hide_no_module(name: str) -> None:
    assert message(lambda: described(name=name)) == (
        "name: the name must not hide a module that bundles import\n"
        f"got: {name}\n"
        "expected: a name other than those of standard modules and packages that bundles import"
    )


INVALID: list[tuple[dict[str, object], str]] = [
    (
        {"tensor": "6x6"},
        """
        tensor: unknown key
        got: tensor
        expected: one of name, mesh, shape, dtype, source, target, target_mesh, source_split, \
target_split, backends, strategy, topology, memory_limit, gradient, single_file, features, \
collective_id
        """,
    ),
    (
        {"mesh": 6},
        """
        mesh: mesh must be a string
        got: 6
        expected: a string in quotes
        """,
    ),
    (
        {"shape": 36},
        """
        shape: a shape must be a list of integers or a string
        got: 36
        expected: [6, 6] or '6x6'
        """,
    ),
    (
        {"shape": [6, 6.0]},
        """
        shape: a shape must be a list of integers or a string
        got: [6, 6.0]
        expected: [6, 6] or '6x6'
        """,
    ),
    (
        {"shape": [6, 0]},
        """
        shape: an extent must be an integer of at least 1
        got: 0 for dimension 1
        expected: 1, 2, 3, …
        """,
    ),
    (
        {"source": '[{"x"}, {"w"}]'},
        """
        source: an axis must exist in the mesh
          [{"x"}, {"w"}]
                   ^^^
        got: "w"
        expected: one of "x", "y"
        """,
    ),
    (
        {"dtype": "float7"},
        """
        dtype: unknown element type; did you mean float64?
          float7
          ^^^^^^
        got: float7
        expected: one of bool, int8, int16, int32, int64, uint8, uint16, uint32, float16, \
bfloat16, float32, float64, float8_e4m3fn, float8_e5m2
        """,
    ),
    (
        {"target_split": "even"},
        """
        target_split: unknown split
          even
          ^^^^
        got: even
        expected: one of flat, nested
        """,
    ),
    (
        {"backends": 1},
        """
        backends: backends must be a list of names, or a string with commas
        got: 1
        expected: ['pallas_tpu', 'triton_gpu'] or 'pallas_tpu,triton_gpu'
        """,
    ),
]


@pytest.mark.parametrize(("changes", "expected"), INVALID)
def test_invalid_fields(changes: dict[str, object], expected: str) -> None:
    assert message(lambda: described(**changes)) == exactly(expected)


def test_a_missing_field() -> None:
    given = {key: text for key, text in TRANSPOSE.items() if key != "dtype"}
    assert message(lambda: describe(given)) == 'dtype: missing\nexpected: dtype = "float32"'


def load(tmp_path: Path, text: str) -> tuple[Description, ...]:
    path = tmp_path / "reshards.toml"
    path.write_text(text)
    return load_toml(path)


def problem(tmp_path: Path, text: str) -> str:
    """The message of a TOML file, without the folder it is in."""
    with pytest.raises(InputError) as caught:
        load(tmp_path, text)
    return str(caught.value).replace(f"{tmp_path}/", "")


def test_toml_tables(tmp_path: Path) -> None:
    second = TABLE.replace("transpose_2x3", "again").replace("[6, 6]", "'6x6'")
    first, again = load(tmp_path, TABLE + second)
    assert first == described()
    assert again == described(name="again")


def test_toml_takes_lists_and_all_flags(tmp_path: Path) -> None:
    more = 'backends = ["triton_gpu"]\nstrategy = "direct"\nsource_split = "nested"\n'
    (only,) = load(tmp_path, TABLE + more)
    assert only == described(backends="triton_gpu", strategy="direct", source_split="nested")


def test_toml_mistakes_are_shown_in_the_file(tmp_path: Path) -> None:
    assert problem(tmp_path, TABLE.replace('{"y"}]\'  #', '{"w"}]\'  #')) == exactly(
        """
        reshards.toml, line 6, reshard 'transpose_2x3', source: an axis must exist in the mesh
          source = '[{"x"}, {"w"}]'  # rows over x
                             ^^^
        got: "w"
        expected: one of "x", "y"
        """
    )


def test_toml_unknown_key(tmp_path: Path) -> None:
    assert problem(tmp_path, TABLE + "colour = 3\n") == exactly(
        """
        reshards.toml, line 8, reshard 'transpose_2x3', colour: unknown key
          colour = 3
          ^^^^^^
        got: colour
        expected: one of name, mesh, shape, dtype, source, target, target_mesh, source_split, \
target_split, backends, strategy, topology, memory_limit, gradient, single_file, features, \
collective_id
        """
    )


def test_toml_missing_key(tmp_path: Path) -> None:
    assert problem(tmp_path, TABLE + TABLE.replace('dtype = "float32"\n', "")) == exactly(
        """
        reshards.toml, line 8, reshard 'transpose_2x3', dtype: missing
          [[reshard]]
          ^^^^^^^^^^^
        expected: dtype = "float32"
        """
    )


def test_toml_two_reshards_of_one_name(tmp_path: Path) -> None:
    assert problem(tmp_path, TABLE + TABLE) == exactly(
        """
        reshards.toml, line 9, name: two operations must not have the same name
          name = "transpose_2x3"
                  ^^^^^^^^^^^^^
        got: transpose_2x3
        expected: a different name for each
        """
    )


def test_toml_two_names_that_differ_only_in_case(tmp_path: Path) -> None:
    assert problem(tmp_path, TABLE + TABLE.replace("transpose_2x3", "Transpose_2x3")) == exactly(
        """
        reshards.toml, line 9, name: the names of two operations must not differ only in case
          name = "Transpose_2x3"
                  ^^^^^^^^^^^^^
        got: Transpose_2x3 and transpose_2x3
        expected: a different name for each; some file systems ignore case
        """
    )


def test_toml_that_looks_like_a_table_inside_a_text(tmp_path: Path) -> None:
    text = TABLE.replace('"float32"', '"""\n[[reshard]]\n"""')
    assert problem(tmp_path, text).splitlines()[0] == (
        "reshards.toml, line 6, reshard 'transpose_2x3', dtype: unknown element type"
    )


def test_not_toml(tmp_path: Path) -> None:
    assert problem(tmp_path, TABLE + "oops\n") == exactly(
        """
        reshards.toml, line 8: not TOML: Expected '=' after a key in a key/value pair
          oops
              ^
        """
    )
    assert problem(tmp_path, TABLE + 'note = """') == exactly(
        """
        reshards.toml: not TOML: Unterminated string
        expected: [[reshard]] tables
        """
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "",
            "reshards.toml: the file must describe at least one operation\n"
            "expected: [[reshard]] tables",
        ),
        (
            "[reshards]\n",
            "reshards.toml, line 1, reshards: unknown table; did you mean reshard?\n"
            "  [reshards]\n  ^^^^^^^^^^\ngot: reshards\n"
            "expected: one of reshard, collective, matmul, relayout, model, program, group, mesh, "
            "defaults, include, out, learned",
        ),
        (
            "[reshard]\nname = 'a'\n",
            "reshards.toml, line 1, reshard: reshard must be an array of tables\n"
            "  [reshard]\n  ^^^^^^^^^\nexpected: [[reshard]] tables",
        ),
    ],
)
def test_toml_of_another_form(tmp_path: Path, text: str, expected: str) -> None:
    assert problem(tmp_path, text) == expected


def test_toml_that_cannot_be_read(tmp_path: Path) -> None:
    assert message(lambda: load_toml(tmp_path / "absent.toml")) == (
        f"{tmp_path}/absent.toml: cannot be read: No such file or directory\n"
        "expected: a file that exists and can be read"
    )
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    assert message(lambda: load_toml(tmp_path / "binary.toml")) == (
        f"{tmp_path}/binary.toml: the file must be UTF-8 text"
    )


def test_backends_in_any_order_are_one_description() -> None:
    """Of which the modules state one command, as `check` and `verify` have it."""
    one = described(backends="jax_xla,pallas_tpu")
    assert one == described(backends=["pallas_tpu", "jax_xla"])
    assert one.command() in emit_described(one).files(one.name)["jax_xla.py"]
