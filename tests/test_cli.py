"""The command line: what it prints, what it writes, and its answer to every mistake."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from strategies import exactly
from typer.testing import CliRunner

import shardwright as sw
from shardwright.codegen.cli import app
from shardwright.codegen.describe import describe
from shardwright.codegen.verify import Report

TRANSPOSE = {
    "--mesh": "x=2,y=3",
    "--shape": "6x6",
    "--dtype": "float32",
    "--source": '[{"x"}, {"y"}]',
    "--target": '[{"y"}, {"x"}]',
}
TABLES = """\
[[reshard]]
name = "first"
mesh = "x=2,y=3"
shape = [6, 6]
dtype = "float32"
source = '[{"x"}, {"y"}]'
target = '[{"y"}, {"x"}]'

[[reshard]]
name = "second"
mesh = "x=4"
shape = [5]
dtype = "int8"
source = '[{"x"}]'
target = '[{}]'
"""


def flags(**changes: str | None) -> list[str]:
    """The flags of the transposition, changed; None leaves one out."""
    given: dict[str, str | None] = {**TRANSPOSE}
    given |= {"--" + key.replace("_", "-"): value for key, value in changes.items()}
    return [word for key, value in given.items() if value is not None for word in (key, value)]


def described() -> sw.Reshard:
    """The transposition."""
    texts = {key.removeprefix("--"): text for key, text in TRANSPOSE.items()}
    return describe({"name": "a", **texts}).reshard()


def run(*words: str | Path) -> SimpleNamespace:
    """Run a command; `out` and `err` are what it prints."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return SimpleNamespace(code=result.exit_code, out=result.stdout, err=result.stderr)


def ok(*words: str | Path) -> str:
    """What a command prints that succeeds."""
    result = run(*words)
    assert result.code == 0, result.err
    return str(result.out)


def mistake(*words: str | Path) -> str:
    """What a command says that is refused: on standard error, nothing on standard output."""
    result = run(*words)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error: ")
    return str(result.err).removeprefix("error: ").rstrip("\n")


def files(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    path = tmp_path / "reshards.toml"
    path.write_text(TABLES)
    return path


def test_emit_from_flags(tmp_path: Path) -> None:
    said = ok("emit", *flags(name="transpose_2x3"), "-o", tmp_path)
    assert said == f"{tmp_path}/transpose_2x3: 6 files written\n"
    from_flags = files(tmp_path / "transpose_2x3")
    assert (
        ok("emit", *flags(name="transpose_2x3"), "--output", tmp_path)
        == f"{tmp_path}/transpose_2x3: unchanged\n"
    )
    mesh = sw.Mesh({"x": 2, "y": 3})
    reshard = sw.Reshard(
        shape=(6, 6),
        dtype="float32",
        source=mesh.sharding('[{"x"}, {"y"}]'),
        target=mesh.sharding('[{"y"}, {"x"}]'),
    )
    sw.emit(sw.plan(reshard)).write(tmp_path / "python" / "transpose_2x3")
    assert files(tmp_path / "python" / "transpose_2x3") == from_flags


def test_emit_from_a_file(tables: Path, tmp_path: Path) -> None:
    root = tmp_path / "generated"
    said = ok("emit", tables, "-o", root)
    assert said == f"{root}/first: 6 files written\n{root}/second: 6 files written\n"
    assert set(json.loads((root / "manifest.json").read_text())["bundles"]) == {"first", "second"}
    assert ok("check", root) == f"{root}: as it would be emitted now\n"


def test_emit_one_of_a_file(tables: Path, tmp_path: Path) -> None:
    root = tmp_path / "generated"
    assert ok("emit", tables, "--name", "second", "-o", root, "--backends", "triton_gpu") == (
        f"{root}/second: 5 files written\n"
    )
    assert not (root / "first").exists()
    assert not (root / "second/pallas_tpu.py").exists()


def test_the_command_in_a_bundle_makes_it_again(tables: Path, tmp_path: Path) -> None:
    root = tmp_path / "generated"
    ok("emit", tables, "-o", root, "--strategy", "direct", "--backends", "triton_gpu")
    module = (root / "second/triton_gpu.py").read_text()
    command = next(line for line in module.splitlines() if "shardwright emit" in line)
    words = shlex.split(command)
    again = tmp_path / "again"
    ok(*words[1:-1], again)
    assert files(again / "second") == files(root / "second")


def test_a_manifest_describes_its_bundles(tables: Path, tmp_path: Path) -> None:
    root = tmp_path / "generated"
    ok("emit", tables, "-o", root)
    ok("emit", root / "manifest.json", "--name", "second", "-o", tmp_path / "again")
    assert files(tmp_path / "again/second") == files(root / "second")


def test_plan_as_json() -> None:
    printed = ok("plan", *flags(), "--json")
    assert json.loads(printed) == sw.plan(described()).to_dict()
    assert json.loads(printed)["bytes"] == {
        "received_max": 24,
        "received_total": 104,
        "sent_max": 24,
        "bound_received_max": 24,
        "bound_received_total": 104,
        "bound_sent_max": 24,
    }


def test_plan_enumerates_large_meshes_only_when_asked() -> None:
    swap = {"source": '[{"x", "y"}]', "target": '[{"y", "x"}]'}
    words = ["plan", *flags(mesh="x=32,y=32", shape="1024", **swap)]
    assert json.loads(ok(*words, "--json"))["steps"][0]["transfers"] is None
    transfers = json.loads(ok(*words, "--json", "--transfers"))["steps"][0]["transfers"]
    assert len(transfers) == 1024
    listed = re.compile(r"^ *\d+ +\d+ +\[", re.MULTILINE)
    assert len(listed.findall(ok(*words))) == 0
    assert len(listed.findall(ok(*words, "--transfers"))) == 1024


def test_plan_for_people(tables: Path) -> None:
    printed = ok("plan", tables, "--name", "first")
    assert printed.splitlines()[:3] == [
        'float32 6x6: [{"x"}, {"y"}] on <["x"=2, "y"=3]>',
        '-> [{"y"}, {"x"}] on <["x"=2, "y"=3]>',
        "strategy direct, steps: exchange",
    ]
    (received,) = (line for line in printed.splitlines() if "received in total" in line)
    assert received.replace("│", "").split() == ["received", "in", "total", "104", "104", "1.000"]


def test_plan_of_a_reshard_that_moves_nothing() -> None:
    printed = ok("plan", *flags(target='[{"x"}, {"y"}]'))
    (received,) = (line for line in printed.splitlines() if "received in total" in line)
    assert received.replace("│", "").split() == ["received", "in", "total", "0", "0", "1.000"]


def test_show(tmp_path: Path) -> None:
    reshard = described()
    plan = sw.plan(reshard)
    parts = (sw.derivation(reshard), sw.tile_table(plan), sw.pictures(plan))
    assert ok("show", *flags()) == "\n\n".join(parts) + "\n"
    path = tmp_path / "picture.svg"
    assert ok("show", *flags(), "--svg", path) == f"{path}: written\n"
    assert ElementTree.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_show_into_a_folder_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "file" / "picture.svg"
    (tmp_path / "file").write_text("")
    assert mistake("show", *flags(), "--svg", path) == (
        "--svg: cannot be written: File exists\n"
        f"got: {path}\n"
        "expected: a file in a folder that exists and can be written"
    )


def test_verify_one_bundle(tmp_path: Path) -> None:
    ok("emit", *flags(name="a", backends="triton_gpu"), "-o", tmp_path)
    result = run("verify", tmp_path / "a")
    assert result.code == 0, result.err
    (row,) = (line for line in result.out.splitlines() if "triton_gpu" in line)
    assert row.replace("│", "").split()[:4] == ["a", "triton_gpu", "6", "ok"]
    assert "verifying" not in result.out


def reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *reports: Report) -> SimpleNamespace:
    """What `verify` does with these reports."""

    def verify(paths: object, *, backends: object, progress: object) -> tuple[Report, ...]:
        return reports

    monkeypatch.setattr("shardwright.codegen.verify.verify", verify)
    return run("verify", tmp_path)


def test_verify_tells_failures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    good = Report("a", "pallas_tpu", 6, "ok")
    bad = Report("a", "triton_gpu", 6, "failed", "device 3 [bold]differs[/] at [0, 1]")
    result = reported(monkeypatch, tmp_path, good, bad)
    assert result.code == 1
    assert "device 3 [bold]differs[/] at [0, 1]" in result.out


def test_verify_that_ran_nothing_is_no_success(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    missing = "needs torch: pip install 'shardwright[gpu]'"
    result = reported(monkeypatch, tmp_path, Report("a", "triton_gpu", 6, "skipped", missing))
    assert result.code == 2
    assert result.err == (
        "error: nothing was verified\n"
        f"got: {missing}\n"
        "expected: at least one module that can run here\n"
    )


def test_check_of_an_edited_bundle(tables: Path, tmp_path: Path) -> None:
    root = tmp_path / "generated"
    ok("emit", tables, "-o", root)
    path = root / "first/plan.json"
    path.write_text(path.read_text().replace('"float32"', '"float64"'))
    result = run("check", root)
    assert result.code == 1
    assert result.out.splitlines()[:3] == [
        "first/plan.json: edited by hand",
        "--- first/plan.json (on disk)",
        "+++ first/plan.json (emitted)",
    ]
    assert '-  "dtype": "float64",' in result.out
    assert '+  "dtype": "float32",' in result.out
    assert run("check", root / "second").code == 0


def test_the_demo(tables: Path, tmp_path: Path) -> None:
    result = run("demo", tables, "-o", tmp_path / "demo")
    assert result.code == 0, result.err
    (row,) = (line for line in result.out.splitlines() if "first" in line)
    cells = row.replace("│", "").split()
    assert cells == ["first", "pallas_tpu", "6", "104", "104", "1.000", "ok"]
    assert "emitting" in result.err
    assert "verifying" in result.err


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
        expected: extents, as 6x6 or 6,6
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
        expected: another name
        """,
    ),
    (
        {"dtype": None, "mesh": None},
        """
        --mesh: a reshard is described by a FILE, or by --mesh, --shape, --dtype, --source, \
--target and --name
        got: no --mesh and no --dtype
        """,
    ),
    (
        {"name": "2x3"},
        """
        --name: the name of a bundle is a Python identifier
        got: 2x3
        expected: letters, digits and underscores, not starting with a digit, no keyword
        """,
    ),
    (
        {"strategy": "basis"},
        """
        --strategy: no such strategy
        got: basis
        expected: auto or direct
        """,
    ),
    (
        {"backends": "triton_gpu,cuda"},
        """
        --backends: no such backend
        got: cuda
        expected: one of pallas_tpu, triton_gpu
        """,
    ),
]


@pytest.mark.parametrize(("changes", "expected"), MISTAKES)
def test_mistakes_in_flags(changes: dict[str, str | None], expected: str, tmp_path: Path) -> None:
    words = flags(**{"name": "a", **changes})
    assert mistake("emit", *words, "-o", tmp_path / "out") == exactly(expected)
    assert files(tmp_path) == {}


def test_what_a_backend_refuses(tables: Path, tmp_path: Path) -> None:
    words = flags(name="a", dtype="float64")
    assert (
        mistake("emit", *words, "-o", tmp_path / "out")
        .splitlines()[0]
        .startswith("--dtype: pallas_tpu cannot move this dtype")
    )
    tables.write_text(TABLES.replace('"int8"', '"float64"'))
    assert mistake("emit", tables, "-o", tmp_path / "out").startswith(
        f"{tables}, reshard 'second', dtype: pallas_tpu cannot move this dtype"
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
        "--mesh: a reshard is described by FILE or by flags, not by both\n"
        f"got: --mesh beside {tables}\n"
        "expected: one of them"
    )


def test_names_that_a_file_does_not_have(tables: Path) -> None:
    assert mistake("emit", tables, "--name", "third") == (
        f"--name: {tables} describes no reshard of this name\n"
        "got: third\n"
        "expected: one of first, second"
    )
    assert mistake("plan", tables) == (
        f"--name: {tables} describes 2 reshards, and one is wanted\nexpected: one of first, second"
    )


def test_an_output_that_cannot_be_written(tables: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    assert mistake("emit", tables, "-o", tmp_path / "out") == (
        "--output: cannot be written: File exists\n"
        f"got: {tmp_path}/out\n"
        "expected: a folder that can be made and written"
    )


@pytest.mark.parametrize("command", ["check", "verify"])
def test_a_folder_without_bundles(command: str, tmp_path: Path) -> None:
    assert mistake(command, tmp_path) == (
        f"{tmp_path}: holds no bundles\n"
        "expected: a folder with a manifest.json that `shardwright emit` wrote, or one bundle in it"
    )


def test_verify_with_a_backend_that_is_none(tmp_path: Path) -> None:
    assert mistake("verify", tmp_path, "--backends", "cuda") == (
        "--backends: no such backend\ngot: cuda\nexpected: one of pallas_tpu, triton_gpu"
    )


def test_usage_mistakes_have_the_same_exit_code() -> None:
    for words in (["frobnicate"], ["emit", "--colour", "red"], ["verify"]):
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
