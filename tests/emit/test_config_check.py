"""One config for one folder: what `check` finds, what may be written, what is removed."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import files, flags, mistake, ok, run
from strategies import exactly

import shardwright as sw
from shardwright.codegen.operations.bundles.check import check

TABLES = """\
[defaults]
backends = ["jax_xla"]
[mesh]
square = "x=2,y=2"

[[reshard]]
name = "rows"
mesh = "square"
shape = [8, 4]
dtype = "int8"
source = '[{"x"}, {}]'
target = '[{"y"}, {}]'

[[reshard]]
name = "columns"
mesh = "square"
shape = [8, 4]
dtype = "int8"
source = '[{}, {"x"}]'
target = '[{}, {"y"}]'
"""
ROWS, COLUMNS = TABLES.partition('[[reshard]]\nname = "columns"')[::2]
COLUMNS = '[[reshard]]\nname = "columns"' + COLUMNS


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a config, in which one is, whose bundles are emitted."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shardwright.toml").write_text(TABLES)
    ok("emit")
    return tmp_path


def found(*words: str | Path) -> str:
    """What `check` prints of differences."""
    result = run("check", *words)
    assert result.code == 1, result.err
    return str(result.out)


def test_nothing_differs(home: Path) -> None:
    assert ok("check") == "generated: identical to a new emission\n"
    assert ok("check", "generated") == "generated: identical to a new emission\n"
    assert ok("check", "rows") == "generated: identical to a new emission\n"
    assert ok("check", "shardwright.toml") == "generated: identical to a new emission\n"
    assert check(home / "generated") == ()


def test_an_edited_table_that_was_not_emitted(home: Path) -> None:
    """The difference of the description, then those of its files."""
    (home / "shardwright.toml").write_text(
        TABLES.replace("""'[{"y"}, {}]'""", """'[{"y", "x"}, {}]'""")
    )
    said = found()
    assert said.startswith(
        exactly(
            """
            rows: emitted from a different description
            --- rows (manifest.json)
            +++ rows (shardwright.toml)
            @@ -4,5 +4,5 @@
             dtype = "int8"
             source = '[{"x"}, {}]'
            -target = '[{"y"}, {}]'
            +target = '[{"y", "x"}, {}]'
             source_split = "flat"
             target_split = "flat"
            rows/README.md: would be emitted differently now
            --- rows/README.md (on disk)
            +++ rows/README.md (emitted)
            """
        )
    )
    assert "rows/jax_xla.py: would be emitted differently now" in said
    assert "columns" not in said
    assert ok("check", "columns") == "generated: identical to a new emission\n"
    assert found("rows") == said
    assert found("generated/rows").splitlines()[0] == said.splitlines()[0]
    ok("emit")
    assert ok("check")


def test_a_table_that_is_gone(home: Path) -> None:
    """Its bundle is found, and removed when the rest is emitted; other files there stay."""
    (home / "shardwright.toml").write_text(ROWS)
    lines = found().splitlines()
    assert lines[:4] == [
        "columns: an orphan: shardwright.toml has no table with this name",
        "--- columns (manifest.json)",
        "+++ columns (shardwright.toml)",
        "@@ -1,10 +0,0 @@",
    ]
    assert lines[4] == '-name = "columns"'
    assert all(line.startswith("-") for line in lines[4:14])
    assert lines[14] == "__init__.py: would be emitted differently now"
    assert '-    "columns": "columns",' in lines[15:]
    more = COLUMNS.replace("columns", "more")
    (home / "shardwright.toml").write_text(ROWS + more)
    assert ok("emit", "rows") == "generated/rows: unchanged\n"
    assert (home / "generated/columns/plan.json").exists()
    (home / "shardwright.toml").write_text(ROWS)
    (home / "generated/columns/__pycache__").mkdir()
    assert ok("emit") == ("generated/rows: unchanged\ngenerated/columns: 5 files removed\n")
    assert not (home / "generated/columns").exists()
    assert ok("check")


def test_files_of_others_in_an_orphan_stay(home: Path) -> None:
    (home / "generated/columns/notes.txt").write_text("mine")
    (home / "shardwright.toml").write_text(ROWS)
    ok("emit")
    assert files(home / "generated/columns") == {"notes.txt": b"mine"}
    assert (
        found() == "columns: an orphan: manifest.json does not list it, remove or move the folder\n"
    )


def test_a_table_that_was_never_emitted(home: Path) -> None:
    more = COLUMNS.replace("columns", "more").replace("[8, 4]", "[8, 6]")
    (home / "shardwright.toml").write_text(TABLES + more)
    lines = found().splitlines()
    assert lines[0] == "more: not emitted"
    assert '+name = "more"' in lines
    assert '+    "more": "more",' in lines
    removed = [line for line in lines if line.startswith("-")]
    assert removed == ["--- more (manifest.json)", "--- __init__.py (on disk)"]


def test_a_file_edited_by_hand(home: Path) -> None:
    path = home / "generated/rows/README.md"
    path.write_text(path.read_text() + "mine\n")
    assert found().splitlines() == [
        "rows/README.md: edited by hand",
        "--- rows/README.md (on disk)",
        "+++ rows/README.md (emitted)",
        *found().splitlines()[3:],
    ]
    assert "-mine" in found()


GROUP = '[[group]]\nname = "both"\nmembers = ["rows", "columns"]\n'


def test_another_file_with_the_same_names(home: Path) -> None:
    """It overwrites nothing, so that groups of the first one stay whole."""
    tables = TABLES.replace('"jax_xla"', '"triton_gpu"')
    (home / "shardwright.toml").write_text(tables + GROUP)
    ok("emit")
    before = files(home)
    other = home / "other.toml"
    other.write_text("out = 'generated'\n" + tables.replace("[8, 4]", "[16, 4]"))
    rule = "a different config owns this folder\n"
    got = "got: generated, written by shardwright.toml\n"
    expected = "expected: a different folder, or the tables of other.toml moved to shardwright.toml"
    assert mistake("emit", "other.toml") == (
        f"other.toml, line 1, out: {rule}  out = 'generated'\n         ^^^^^^^^^\n{got}{expected}"
    )
    assert mistake("emit", "other.toml", "-o", "generated") == f"--output: {rule}{got}{expected}"
    assert {path: text for path, text in files(home).items() if path != "other.toml"} == before
    assert ok("check")
    problems = found("other.toml").splitlines()
    assert problems[0] == "both: an orphan: other.toml has no table with this name"
    assert "rows: emitted from a different description" in problems
    assert problems[-1] == (
        "manifest.json: names ../shardwright.toml, but other.toml describes the folder"
    )


def test_a_group_that_was_edited(home: Path) -> None:
    tables = TABLES.replace('"jax_xla"', '"triton_gpu"')
    (home / "shardwright.toml").write_text(tables + GROUP)
    ok("emit")
    (home / "shardwright.toml").write_text(tables + GROUP.replace('"rows", ', ""))
    lines = found().splitlines()
    assert lines[:4] == [
        "both: emitted from a different description",
        "--- both (manifest.json)",
        "+++ both (shardwright.toml)",
        "@@ -1,4 +1,3 @@",
    ]
    assert '-  "rows",' in lines
    assert "both/triton_gpu.py: would be emitted differently now" in lines


def test_a_config_that_was_renamed_keeps_its_folder(home: Path) -> None:
    (home / "shardwright.toml").rename(home / "mine.toml")
    assert found("generated") == "manifest.json: the config ../shardwright.toml does not exist\n"
    assert ok("emit", "mine.toml") == "generated/rows: unchanged\ngenerated/columns: unchanged\n"
    assert ok("check", "generated")


def test_flags_beside_a_config(home: Path) -> None:
    """They write what it says, by the command in a bundle, and nothing else."""
    before = files(home)
    assert ok("emit", "generated/manifest.json", "--name", "rows") == "generated/rows: unchanged\n"
    assert mistake("emit", *flags(name="rows")) == (
        "--output: a config owns this folder but does not describe this bundle\n"
        "got: rows, with a description that shardwright.toml does not have\n"
        "expected: a table for it in shardwright.toml, or a different folder"
    )
    assert mistake("emit", "rows", "--backends", "triton_gpu").startswith("--output: a config owns")
    with pytest.raises(sw.InputError, match="a config owns this folder"):
        sw.emit(sw.load_toml("shardwright.toml")[0].reshard()).write("generated/rows")
    assert files(home) == before


def test_a_config_takes_no_folder_with_other_bundles(home: Path) -> None:
    ok("emit", *flags(name="mine", backends="jax_xla"), "-o", "others")
    assert mistake("emit", "-o", "others") == (
        "--output: the folder holds bundles that shardwright.toml does not describe\n"
        "got: mine in others\n"
        "expected: tables for these bundles, or a different folder"
    )


def test_flags_of_one_bundle_are_checked(tmp_path: Path) -> None:
    ok("emit", *flags(name="a", backends="jax_xla"), "-o", tmp_path)
    words = [*flags(name="a", backends="jax_xla"), "-o", tmp_path]
    assert ok("check", *words) == f"{tmp_path}: identical to a new emission\n"
    words[words.index("6x6")] = "6x12"
    assert found(*words).splitlines()[0] == "a: emitted from a different description"
