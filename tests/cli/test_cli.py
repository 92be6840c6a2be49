"""The command line: what its commands print and write."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from commands import TABLES, described, files, flags, mistake, ok, run

import shardwright as sw
from shardwright.codegen.operations.verify import Report
from shardwright.codegen.text.support import support_files

# Files of support: of both kernel backends, and of Triton's alone.
SUPPORT = len(support_files(("pallas_tpu", "triton_gpu")))
TRITON = len(support_files(("triton_gpu",)))


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    path = tmp_path / "reshards.toml"
    path.write_text(TABLES)
    return path


def test_the_version() -> None:
    assert ok("--version") == f"shardwright {sw.__version__}\n"


def test_emit_from_flags(tmp_path: Path) -> None:
    said = ok("emit", *flags(name="transpose_2x3"), "-o", tmp_path)
    assert said == (
        f"{tmp_path}/_support: {SUPPORT} files written\n{tmp_path}/transpose_2x3: 6 files written\n"
    )
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
    assert said == (
        f"{root}/_support: {SUPPORT} files written\n"
        f"{root}/first: 6 files written\n{root}/second: 6 files written\n"
    )
    assert set(json.loads((root / "manifest.json").read_text())["bundles"]) == {"first", "second"}
    assert ok("check", root) == f"{root}: identical to a new emission\n"


def test_emit_one_of_a_file(tables: Path, tmp_path: Path) -> None:
    root = tmp_path / "generated"
    assert ok("emit", tables, "--name", "second", "-o", root, "--backends", "triton_gpu") == (
        f"{root}/_support: {TRITON} files written\n{root}/second: 5 files written\n"
    )
    assert not (root / "first").exists()
    assert not (root / "second/pallas_tpu.py").exists()


def test_emit_says_what_it_removes(tmp_path: Path) -> None:
    ok("emit", *flags(name="a"), "-o", tmp_path)
    assert ok("emit", *flags(name="a", backends="triton_gpu"), "-o", tmp_path) == (
        f"{tmp_path}/_support: 1 file written, {SUPPORT - TRITON} files removed\n"
        f"{tmp_path}/a: 3 files written, pallas_tpu.py removed\n"
    )
    assert ok("emit", *flags(name="a", backends="triton_gpu"), "-o", tmp_path) == (
        f"{tmp_path}/a: unchanged\n"
    )


def test_the_command_in_a_bundle_makes_it_again(tables: Path, tmp_path: Path) -> None:
    root = tmp_path / "generated"
    ok("emit", tables, "-o", root, "--strategy", "direct", "--backends", "triton_gpu")
    module = (root / "second/triton_gpu.py").read_text()
    command = next(line for line in module.splitlines() if "shardwright emit" in line)
    words = shlex.split(command)
    again = tmp_path / "again"
    ok(*words[1:], "-o", again)
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
    summary, _, rest = ok("show", *flags()).partition("\n\n")
    assert rest == "\n\n".join(parts) + "\n"
    assert summary.splitlines() == [
        "float32 6x6, 144 bytes, on 6 devices",
        'from [{"x"}, {"y"}] on <["x"=2, "y"=3]>: 3x2 a device',
        'to   [{"y"}, {"x"}] on <["x"=2, "y"=3]>: 2x3 a device',
        "a device receives at most 24 bytes and sends at most 24; all together receive 104",
        "at least: 24, 24, 104",
        "12 tiles go to other devices, 4 stay where they are",
        "below: how the tiles are derived, all tiles, and pictures of them",
    ]
    path = tmp_path / "picture.svg"
    assert ok("show", *flags(), "--svg", path) == f"{path}: written\n"
    assert ElementTree.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_show_into_a_folder_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "file" / "picture.svg"
    (tmp_path / "file").write_text("")
    assert mistake("show", *flags(), "--svg", path) == (
        "--svg: cannot be written: no such folder\n"
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

    monkeypatch.setattr("shardwright.codegen.operations.bundles.verify.verify", verify)
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
    missing = "needs torch: pip install -e '.[gpu]' in the checkout of shardwright"
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


@pytest.mark.slow
def test_the_demo(tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardwright.codegen.cli.progress.PATIENCE", 0.05)
    result = run("demo", tables, "-o", tmp_path / "demo")
    assert result.code == 0, result.err
    (row,) = (line for line in result.out.splitlines() if "│ first" in line)
    cells = row.replace("│", "").split()
    assert cells == ["first", "6", "104", "104", "ok"]
    assert result.out.splitlines()[-3:] == [
        "4 modules of 2 reshards ran on this CPU, large ones in a smaller size. Each "
        "result equals the oracle's, bit for bit.",
        "Bytes received: by all devices together; least possible: by any plan.",
        f"Next: read {tmp_path}/demo/first/README.md and a module next to it, then emit your own "
        "(README.md).",
    ]
    assert "verifying" in result.err


@pytest.mark.slow
def test_the_demo_without_torch(tables: Path, tmp_path: Path) -> None:
    result = run("demo", tables, "-o", tmp_path / "demo", "--extras", "tpu")
    assert result.code == 0, result.err
    assert "triton_gpu" not in result.out.partition("left out")[0]
    assert result.out.splitlines()[-1] == (
        "left out: modules of triton_gpu (2), which needs triton and torch (extra gpu); "
        "`make demo` verifies them too"
    )
    assert mistake("demo", tables, "-o", tmp_path / "demo", "--extras", "tpu,docs") == (
        "--extras: no such extra to verify with\ngot: tpu,docs\nexpected: one of test, gpu, tpu"
    )


# A locale whose encoding is ASCII, and Python not to take UTF-8 in its place.
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.slow
@pytest.mark.parametrize("command", ["emit", "plan", "show", "verify"])
def test_the_locale_makes_no_difference(command: str, tmp_path: Path) -> None:
    """Texts beyond ASCII are read, printed and written as UTF-8; nothing else of the machine's
    settings is needed than where programs are."""
    (tmp_path / "tables.toml").write_text(f"# Größe\n{TABLES}", encoding="utf-8")
    ok("emit", tmp_path / "tables.toml", "-o", tmp_path / "out", "--backends", "jax_xla")
    given = {
        "emit": ["tables.toml", "-o", "emitted"],
        "plan": ["tables.toml", "--name", "first"],
        "show": ["tables.toml", "--name", "first"],
        "verify": ["out"],
    }[command]
    words = [sys.executable, "-m", "shardwright", command, *given]
    only = {key: os.environ[key] for key in ("HOME", "PATH") if key in os.environ}
    said = []
    for locale in (ASCII, {"LC_ALL": "C.UTF-8"}):
        env = only | locale
        result = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True)
        assert result.returncode == 0, result.stderr.decode()
        said.append(result.stdout.decode("utf-8"))
        if command == "emit":
            said[-1] = {p: p.read_bytes() for p in (tmp_path / "emitted").rglob("*.py")}
            shutil.rmtree(tmp_path / "emitted")
    if command != "verify":  # which says how long it took
        assert said[0] == said[1]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_nothing_can_be_printed() -> None:
    words = [str(word) for word in (sys.executable, "-m", "shardwright", "plan", *flags())]
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (result.returncode, result.stderr) == (
        1,
        "error: cannot write to standard output: No space left on device\n",
    )
