"""The command line's answer to every mistake: one message, exit code 2, nothing written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from commands import TABLES, files, flags, mistake, ok, run
from strategies import exactly


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    path = tmp_path / "reshards.toml"
    path.write_text(TABLES)
    return path


MISTAKES: list[tuple[dict[str, str | None], str]] = [
    (
        {"source": '[{"x"}, {"w"}]'},
        """
        --source: an axis must exist in the mesh
          [{"x"}, {"w"}]
                   ^^^
        got: "w"
        expected: one of "x", "y"
        """,
    ),
    (
        {"shape": "6y6"},
        """
        --shape: the text is not a shape
          6y6
          ^^^
        got: 6y6
        expected: extents, for example 6x6 or 6,6
        """,
    ),
    (
        {"target": '[{"x"}]'},
        """
        --target: there must be one dimension sharding for each dimension of the tensor
          [{"x"}]
          ^^^^^^^
        got: 1 dimension sharding for a tensor of rank 2
        expected: 2 dimension shardings
        """,
    ),
    (
        {"target_mesh": "x=2,x=3"},
        """
        --target-mesh: axis names must be distinct
          x=2,x=3
              ^
        got: "x" twice
        expected: a different name
        """,
    ),
    (
        {"dtype": None, "mesh": None},
        """
        --mesh: a reshard must be described by a FILE, or by --mesh, --shape, --dtype, --source, \
--target and --name
        got: no --mesh and no --dtype
        """,
    ),
    (
        {"name": "2x3"},
        """
        --name: the name of a bundle must be a Python identifier
        got: 2x3
        expected: letters, digits and underscores, not starting with a digit; not a keyword
        """,
    ),
    (
        {"mesh": "x=2097152,y=1"},
        """
        --mesh: the mesh has too many devices to plan for
        got: 2097152 devices
        expected: at most 1048576
        """,
    ),
    (
        {"topology": "v5e:99999999x4"},
        """
        --topology: the topology is too large
        got: 99999999x4
        expected: at most 1048576 devices
        """,
    ),
    (
        {"strategy": "basis"},
        """
        --strategy: every backend must support the strategy
        got: basis for pallas_tpu, triton_gpu
        expected: one of auto, direct, or backends jax_xla
        """,
    ),
    (
        {"backends": "triton_gpu,cuda"},
        """
        --backends: no such backend
        got: cuda
        expected: one of pallas_tpu, triton_gpu, jax_xla
        """,
    ),
]


@pytest.mark.parametrize(("changes", "expected"), MISTAKES)
def test_mistakes_in_flags(changes: dict[str, str | None], expected: str, tmp_path: Path) -> None:
    words = flags(**{"name": "a", **changes})
    assert mistake("emit", *words, "-o", tmp_path / "out") == exactly(expected)
    assert files(tmp_path) == {}


def test_plan_and_show_need_no_name() -> None:
    for command in ("plan", "show"):
        assert mistake(command, "--mesh", "x=2") == exactly(
            """
            --shape: a reshard must be described by a FILE, or by --mesh, --shape, --dtype, \
--source and --target
            got: no --shape and no --dtype and no --source and no --target
            """
        )


def test_what_a_backend_refuses(tables: Path, tmp_path: Path) -> None:
    words = flags(name="a", dtype="float64")
    assert (
        mistake("emit", *words, "-o", tmp_path / "out")
        .splitlines()[0]
        .startswith("--dtype: pallas_tpu cannot move this dtype")
    )
    tables.write_text(TABLES.replace('"int8"', '"float64"'))
    assert mistake("emit", tables, "-o", tmp_path / "out").startswith(
        f"{tables}, line 13, reshard 'second', dtype: pallas_tpu cannot move this dtype"
    )
    assert not (tmp_path / "out").exists()
    ok("emit", *words, "--backends", "triton_gpu", "-o", tmp_path / "out")


def test_mistakes_in_a_file_are_shown_in_it(tables: Path, tmp_path: Path) -> None:
    tables.write_text(TABLES.replace("""source = '[{"x"}]'""", """source = '[{"y"}]'"""))
    assert mistake("emit", tables, "-o", tmp_path / "out") == exactly(
        f"""
        {tables}, line 14, reshard 'second', source: an axis must exist in the mesh
          source = '[{{"y"}}]'
                      ^^^
        got: "y"
        expected: "x"
        """
    )
    assert not (tmp_path / "out").exists()


def test_a_file_and_flags(tables: Path) -> None:
    assert mistake("emit", tables, "--mesh", "x=2") == (
        "--mesh: give either a FILE or the flags of a reshard\n"
        f"got: both {tables} and --mesh\n"
        "expected: only the FILE, or only flags"
    )


def test_names_that_a_file_does_not_have(tables: Path) -> None:
    assert mistake("emit", tables, "--name", "third") == (
        f"--name: {tables} has no operation with this name\n"
        "got: third\n"
        "expected: one of first, second"
    )
    assert mistake("plan", tables) == (
        f"name one of the 2 reshards in {tables}\nexpected: one of first, second"
    )


def test_an_output_that_cannot_be_written(tables: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    assert mistake("emit", tables, "-o", tmp_path / "out") == (
        "--output: cannot be written: File exists\n"
        f"got: {tmp_path}/out\n"
        "expected: a folder that can be created and written"
    )


def test_a_name_that_differs_only_in_case(tmp_path: Path) -> None:
    ok("emit", *flags(name="First"), "-o", tmp_path / "out")
    said = (
        "names of bundles must differ in more than case\n"
        "got: {} and {}\n"
        "expected: a name that differs even on file systems that ignore case"
    )
    assert mistake("emit", *flags(name="FIRST"), "-o", tmp_path / "out") == (
        "--name: " + said.format("FIRST", "First")
    )


@pytest.mark.parametrize("command", ["check", "verify"])
def test_a_folder_without_bundles(command: str, tmp_path: Path) -> None:
    assert mistake(command, tmp_path) == (
        f"{tmp_path}: holds no bundles\n"
        "expected: a folder with a manifest.json that `shardwright emit` wrote, or one bundle in it"
    )


def test_verify_with_a_backend_that_is_none(tmp_path: Path) -> None:
    assert mistake("verify", tmp_path, "--backends", "cuda") == (
        "--backends: no such backend\ngot: cuda\nexpected: one of pallas_tpu, triton_gpu, jax_xla"
    )


def test_usage_mistakes_have_the_same_exit_code() -> None:
    for words in (["frobnicate"], ["emit", "--colour", "red"], ["compile"]):
        result = run(*words)
        assert (result.code, result.out) == (2, "")
        assert "Error: " in result.err


def test_as_a_module_and_as_a_script(tmp_path: Path) -> None:
    """Outside the test's own process: no traceback, and the exit code of the whole program."""
    script = Path(sys.executable).with_name("shardwright")
    for program in ([sys.executable, "-m", "shardwright"], [str(script)]):
        result = subprocess.run(
            [*program, "plan", *flags(shape="6x0")], capture_output=True, text=True, cwd=tmp_path
        )
        assert (result.returncode, result.stdout) == (2, "")
        assert (
            result.stderr
            == exactly(
                """
            error: --shape: an extent must be an integer of at least 1
              6x0
                ^
            got: 0 for dimension 1
            expected: 1, 2, 3, …
            """
            )
            + "\n"
        )
