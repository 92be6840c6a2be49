"""Bundles on disk: the same bytes every time, written whole or not at all, checked afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from strategies import exactly, message

import shardwright as sw
from shardwright.codegen.operations.bundles.check import check
from shardwright.codegen.operations.emit import write as writing
from shardwright.codegen.operations.emit.reshard import emit_described
from shardwright.codegen.spec.description import Description
from shardwright.codegen.spec.manifest import sha256
from shardwright.codegen.text.support import support_files, version

PALLAS = {"pallas_tpu.py"}
TRITON = {"triton_gpu.py"}
FILES = PALLAS | TRITON | {"README.md", "__init__.py", "plan.json", "reshard.svg"}
SUPPORT = support_files(["triton_gpu"])


def reshard(extent: int = 6, **options: str) -> sw.Reshard:
    mesh = sw.Mesh({"x": 2, "y": 3})
    return sw.Reshard(
        shape=(extent, 6),
        dtype="float32",
        source=mesh.sharding('[{"x"}, {"y"}]'),
        target=mesh.sharding('[{"y"}, {"x"}]'),
        **options,
    )


def tree(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def times(root: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}


def test_a_bundle_on_disk(tmp_path: Path) -> None:
    plan = sw.plan(reshard())
    changed = sw.emit(plan).write(tmp_path / "generated" / "transpose")
    root = tmp_path / "generated"
    support = support_files(["pallas_tpu", "triton_gpu"])
    written = {f"transpose/{name}" for name in FILES} | {f"_support/{name}" for name in support}
    assert set(tree(root)) == {"manifest.json", "__init__.py", *written}
    assert {str(path.relative_to(root)) for path in changed} == set(tree(root))
    assert json.loads((root / "transpose/plan.json").read_text()) == plan.to_dict()
    for path, content in tree(root).items():
        assert b"\r" not in content, path
        assert content.endswith(b"\n"), path
        assert str(tmp_path).encode() not in content, path


def test_the_manifest(tmp_path: Path) -> None:
    sw.emit(reshard(), backends=("triton_gpu",)).write(tmp_path / "transpose")
    files = sorted(FILES - PALLAS)
    assert json.loads((tmp_path / "manifest.json").read_text()) == {
        "version": 1,
        "bundles": {
            "transpose": {
                "description": {
                    "mesh": '<["x"=2, "y"=3]>',
                    "shape": [6, 6],
                    "dtype": "float32",
                    "source": '[{"x"}, {"y"}]',
                    "target": '[{"y"}, {"x"}]',
                    "source_split": "flat",
                    "target_split": "flat",
                    "backends": ["triton_gpu"],
                    "strategy": "auto",
                },
                "files": {
                    name: sha256((tmp_path / "transpose" / name).read_text()) for name in files
                },
            }
        },
        "support": {
            "versions": {"triton_gpu": version("triton_gpu")},
            "files": {name: sha256(SUPPORT[name]) for name in sorted(SUPPORT)},
        },
        "package": {"__init__.py": sha256((tmp_path / "__init__.py").read_text())},
    }


def test_the_way_to_a_bundle_does_not_show_in_it() -> None:
    from_reshard = sw.emit(reshard()).files("a")
    assert sw.emit(sw.plan(reshard(), "direct")).files("a") == from_reshard
    assert sw.emit(reshard(), backends=("triton_gpu", "pallas_tpu")).files("a") == from_reshard
    assert sw.emit(reshard(), strategy="direct").files("a") != from_reshard


def test_a_plan_of_a_line_a_sender(tmp_path: Path) -> None:
    text = sw.emit(reshard()).files("a")["plan.json"]
    lines = [line for line in text.splitlines() if line.startswith('    {"from"')]
    senders = sw.plan(reshard()).transfers().sender.tolist()
    assert [line.count('"from"') for line in lines] == [senders.count(k) for k in range(6)]


def test_the_header_is_the_command_of_the_bundle() -> None:
    bundle = sw.emit(reshard())
    command = bundle.description("a").command()
    for name in ("pallas_tpu.py", "triton_gpu.py", "README.md"):
        assert command in bundle.files("a")[name]


BACKENDS = {"pallas_tpu", "triton_gpu", "jax_xla", "jax_spmd"}


@pytest.mark.parametrize("backend", ["pallas_tpu", "triton_gpu", "jax_xla"])
def test_emission_loads_no_other_backend(backend: str) -> None:
    program = (
        "import sys, shardwright as sw; mesh = sw.Mesh({'x': 2});"
        "rows, columns = mesh.sharding('[{\"x\"}, {}]'), mesh.sharding('[{}, {\"x\"}]');"
        "reshard = sw.Reshard((64, 64), 'float32', rows, columns);"
        "matmul = sw.Matmul('float32', ((64, 64), rows), ((64, 64), columns), rows);"
        f"[sw.emit(what, backends=({backend!r},)).files('a') for what in (reshard, matmul)];"
        "print(*(name.split('.')[3] for name in sys.modules if '.backends.' in name))"
    )
    words = [sys.executable, "-c", program]
    loaded = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()
    assert BACKENDS & {*loaded} == {backend}


@pytest.mark.slow
def test_hash_seeds_do_not_matter() -> None:
    program = (
        "import shardwright as sw, sys;"
        "m = sw.Mesh({'b': 2, 'a': 3, 'c': 2});"
        "r = sw.Reshard(shape=(7, 13), dtype='int8', source=m.sharding('[{\"a\", \"c\"}, {}]'),"
        '               target=m.sharding(\'[{"b"}, {"c"}]\'));'
        "b = sw.emit(r);"
        "sys.stdout.write(b.description('a').command());"
        "sys.stdout.writelines(b.files('a').values())"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": value},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for value in ("7", "4711")
    ]
    assert len(outputs[0]) > 10_000
    assert outputs[0] == outputs[1]


def test_nothing_is_written_that_is_unchanged(tmp_path: Path) -> None:
    sw.emit(reshard()).write(tmp_path / "a")
    before = times(tmp_path)
    assert sw.emit(reshard()).write(tmp_path / "a") == ()
    assert times(tmp_path) == before
    (tmp_path / "a/plan.json").unlink()
    assert sw.emit(reshard()).write(tmp_path / "a") == (tmp_path / "a/plan.json",)
    assert check(tmp_path) == ()


def test_edits_by_hand_are_kept_beside(tmp_path: Path) -> None:
    """Of a module that is emitted anew, of one that the bundle loses, and of a support module; what
    the manifest has, a later emission overwrites without a word."""
    sw.emit(reshard()).write(tmp_path / "a")
    for name in ("a/triton_gpu.py", "a/pallas_tpu.py", "_support/torch_launch.py"):
        (tmp_path / name).write_bytes(b"mine \xff")
    with pytest.warns(match="edited by hand") as said:
        sw.emit(reshard(12), backends=("triton_gpu",)).write(tmp_path / "a")
    assert sorted(str(each.message) for each in said) == [
        f"{tmp_path}/{folder}/{name} was edited by hand; "
        f"the edited file is now .{name}.edited next to it"
        for folder, name in (
            ("_support", "torch_launch.py"),
            ("a", "pallas_tpu.py"),
            ("a", "triton_gpu.py"),
        )
    ]
    assert (tmp_path / "a/.triton_gpu.py.edited").read_bytes() == b"mine \xff"
    assert check(tmp_path) == ()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sw.emit(reshard(6)).write(tmp_path / "a")


def test_bundles_of_a_root_keep_each_other(tmp_path: Path) -> None:
    sw.emit(reshard()).write(tmp_path / "b")
    first = tree(tmp_path / "b")
    sw.emit(reshard(12)).write(tmp_path / "a")
    assert list(json.loads((tmp_path / "manifest.json").read_text())["bundles"]) == ["a", "b"]
    assert tree(tmp_path / "b") == first
    assert check(tmp_path) == ()


def _write(job: tuple[Path, int]) -> None:
    root, number = job
    sw.emit(reshard(6 + number), backends=("triton_gpu",)).write(root / f"bundle_{number}")


@pytest.mark.slow
def test_writers_at_the_same_time_keep_each_other(tmp_path: Path) -> None:
    # A fork of a process in which JAX has threads may hang.
    with ProcessPoolExecutor(3, get_context("spawn")) as pool:
        list(pool.map(_write, [(tmp_path, number) for number in range(12)]))
    assert len(json.loads((tmp_path / "manifest.json").read_text())["bundles"]) == 12
    assert check(tmp_path) == ()


def test_a_bundle_with_fewer_backends_loses_their_files(tmp_path: Path) -> None:
    sw.emit(reshard()).write(tmp_path / "a")
    (tmp_path / "a/notes.txt").write_text("mine")
    changed = sw.emit(reshard(), backends=("triton_gpu",)).write(tmp_path / "a")
    assert tmp_path / "a/pallas_tpu.py" in changed
    assert set(tree(tmp_path / "a")) == FILES - PALLAS | {"notes.txt"}


def test_files_of_others_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/README.md").write_text("my notes")
    before = tree(tmp_path)
    assert message(lambda: sw.emit(reshard()).write(tmp_path / "a")) == (
        "path: refusing to overwrite a file that shardwright did not write\n"
        f"got: {tmp_path}/a/README.md\n"
        "expected: a different name for the bundle, or that file moved away"
    )
    assert tree(tmp_path) == before


def test_names_that_differ_only_in_case(root: Path) -> None:
    before = tree(root)
    assert message(lambda: sw.emit(reshard()).write(root / "A")) == (
        "name: names of bundles must differ in more than case\n"
        "got: A and a\n"
        "expected: a name that differs even on file systems that ignore case"
    )
    assert tree(root) == before


def test_an_interrupted_emission_can_be_repeated(tmp_path: Path) -> None:
    sw.emit(reshard()).write(tmp_path / "a")
    whole = tree(tmp_path)
    (tmp_path / "manifest.json").unlink()
    (tmp_path / "a/plan.json").unlink()
    sw.emit(reshard()).write(tmp_path / "a")
    assert tree(tmp_path) == whole


def test_a_failure_on_the_way_leaves_everything_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sw.emit(reshard()).write(tmp_path / "a")
    before = tree(tmp_path)
    write_bytes = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        if path.name == ".triton_gpu.py.tmp":
            write_bytes(path, data[:100])
            raise OSError(28, "No space left on device", str(path))
        return write_bytes(path, data)

    monkeypatch.setattr(writing.Path, "write_bytes", full)
    for name in ("a", "b"):
        said = message(lambda name=name: sw.emit(reshard(12)).write(tmp_path / name))
        assert said == (
            "path: cannot be written: No space left on device\n"
            f"got: {tmp_path}/{name}/.triton_gpu.py.tmp\n"
            "expected: a folder that can be created and written"
        )
        assert tree(tmp_path) == before
        assert not (tmp_path / "b").exists()


def test_a_folder_where_a_file_is_to_be(tmp_path: Path) -> None:
    sw.emit(reshard()).write(tmp_path / "a")
    (tmp_path / "a/triton_gpu.py").unlink()
    (tmp_path / "a/triton_gpu.py").mkdir()
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}
    assert message(lambda: sw.emit(reshard(12)).write(tmp_path / "a")) == (
        "path: cannot be written: Is a directory\n"
        f"got: {tmp_path}/a/triton_gpu.py\n"
        "expected: a folder that can be created and written"
    )
    assert before == {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert message(lambda: sw.emit(reshard()).write(tmp_path / "file/a")) == (
        "path: cannot be written: File exists\n"
        f"got: {tmp_path}/file\n"
        "expected: a folder that can be created and written"
    )


def test_unknown_and_missing_backends() -> None:
    assert message(lambda: sw.emit(reshard(), backends=("cuda",))) == (
        "backends: no such backend\ngot: cuda\nexpected: one of pallas_tpu, triton_gpu, jax_xla"
    )
    near: Any = {"backend": "triton_gpu"}
    assert message(lambda: sw.emit(reshard(), **near)) == (
        "sw.emit: unknown argument; did you mean backends?\ngot: backend\nexpected: one of what, "
        "backends, strategy, topology, memory_limit, loop, gradient, single_file, collective_id, "
        "features"
    )
    assert message(lambda: sw.emit(reshard(), backends=())) == (
        "backends: give at least one backend, and each only once\n"
        "got: none\n"
        "expected: one or more of pallas_tpu, triton_gpu, jax_xla"
    )
    assert message(lambda: sw.emit(reshard(), backends=("triton_gpu", "triton_gpu"))) == (
        "backends: give at least one backend, and each only once\n"
        "got: triton_gpu, triton_gpu\n"
        "expected: one or more of pallas_tpu, triton_gpu, jax_xla"
    )


def test_the_name_of_a_bundle_is_that_of_its_folder(tmp_path: Path) -> None:
    assert message(lambda: sw.emit(reshard()).write(tmp_path / "2x3")) == (
        "name: the name of a bundle must be a Python identifier\n"
        "got: 2x3\n"
        "expected: letters, digits and underscores, not starting with a digit; not a keyword"
    )
    assert tree(tmp_path) == {}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    sw.emit(reshard()).write(tmp_path / "a")
    sw.emit(reshard(12)).write(tmp_path / "b")
    return tmp_path


def test_check_passes(root: Path) -> None:
    (root / "a/__pycache__").mkdir()
    seen: list[tuple[int, int]] = []
    assert check(root, lambda done, total: seen.append((done, total))) == ()
    assert seen == [(0, 2), (1, 2), (2, 2)]
    assert check(root / "a") == ()


def test_check_shows_an_edit(root: Path) -> None:
    path = root / "a/__init__.py"
    path.write_text(path.read_text().replace("its plan", "another plan"))
    (problem,) = check(root)
    assert (problem.path, problem.rule) == ("a/__init__.py", "edited by hand")
    assert str(problem).split("\n") == [
        "a/__init__.py: edited by hand",
        "--- a/__init__.py (on disk)",
        "+++ a/__init__.py (emitted)",
        "@@ -1,3 +1,3 @@",
        '-"""One reshard: README.md describes it, plan.json has another plan."""',
        '+"""One reshard: README.md describes it, plan.json has its plan."""',
        " ",
        " import pathlib",
    ]
    assert check(root / "b") == ()


def test_check_sees_a_missing_newline_and_other_line_ends(root: Path) -> None:
    for name, change in (
        ("README.md", bytes.rstrip),
        ("plan.json", lambda b: b.replace(b"\n", b"\r\n")),
    ):
        path = root / "a" / name
        path.write_bytes(change(path.read_bytes()))
    problems = check(root)
    assert [problem.path for problem in problems] == ["a/README.md", "a/plan.json"]
    assert all(problem.diff for problem in problems)


def test_check_tells_what_is_out_of_date_from_what_was_edited(root: Path) -> None:
    """As after a change of the emitter: file and manifest agree, and the emission is another."""
    path, listing = root / "a/README.md", root / "manifest.json"
    old = path.read_text()
    path.write_text("older\n")
    listing.write_text(listing.read_text().replace(sha256(old), sha256("older\n"), 1))
    (problem,) = check(root)
    assert (problem.path, problem.rule) == ("a/README.md", "would be emitted differently now")


def test_check_finds_missing_stray_and_orphaned(root: Path) -> None:
    (root / "a/plan.json").unlink()
    (root / "b/helper.py").write_text("")
    (root / "old").mkdir()
    assert [str(problem) for problem in check(root)] == [
        "a/plan.json: missing",
        "b/helper.py: no emission writes this file",
        "old: an orphan: manifest.json does not list it, remove or move the folder",
    ]


def test_check_finds_what_is_wrong_with_the_manifest(root: Path) -> None:
    listing = root / "manifest.json"
    document = json.loads(listing.read_text())
    hashes = document["bundles"]["a"]["files"]
    right, hashes["plan.json"], hashes["old.py"] = hashes["plan.json"], "0" * 64, "1" * 64
    listing.write_text(json.dumps(document))
    assert [str(problem) for problem in check(root)] == [
        "a/old.py: manifest.json lists a file that would not be emitted now",
        f"a/plan.json: manifest.json has a different hash for this file\n-{'0' * 64}\n+{right}",
    ]


def test_check_of_what_can_no_longer_be_emitted(root: Path) -> None:
    listing = root / "manifest.json"
    listing.write_text(listing.read_text().replace('"auto"', '"by pigeon"', 1))
    (problem,) = check(root)
    assert str(problem) == exactly(
        """
        a: would not be emitted now: strategy: no such strategy
        got: by pigeon
        expected: one of auto, direct, basis
        """
    )


def test_a_large_file_shows_its_first_difference(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardwright.codegen.operations.bundles.check.DIFFED_CHARACTERS", 100)
    path = root / "a/plan.json"
    path.write_text(path.read_text().replace("float32", "float64"))
    (problem,) = check(root)
    assert problem.diff == exactly(
        """
        @@ line 3, the first that differs @@
        -  "dtype": "float64",
        +  "dtype": "float32",
        """
    )


def test_paths_without_bundles(root: Path) -> None:
    wanted = "a folder with a manifest.json that `shardwright emit` wrote, or one bundle in it"
    assert message(lambda: check(root / "absent")) == (
        f"{root}/absent: no such folder\nexpected: {wanted}"
    )
    (root / "empty").mkdir()
    assert message(lambda: check(root / "empty")) == (
        f"{root}/empty: holds no bundles\nexpected: {wanted}"
    )


def test_a_manifest_that_is_gone(root: Path) -> None:
    (root / "manifest.json").unlink()
    (root / "notes").mkdir()
    for path in (root, root / "b"):
        assert message(lambda path=path: check(path)) == (
            f"{path}: manifest.json is missing\n"
            f"got: no {root}/manifest.json next to a, b\n"
            "expected: this file; run `shardwright emit` on the same reshards to write it again"
        )
    sw.emit(reshard()).write(root / "a")
    sw.emit(reshard(12)).write(root / "b")
    assert [str(problem) for problem in check(root)] == [
        "notes: an orphan: manifest.json does not list it, remove or move the folder"
    ]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"version": 1}', '{"version": 1, "bundles": []}']
)
def test_a_manifest_that_is_none(root: Path, text: str) -> None:
    (root / "manifest.json").write_text(text)
    expected = (
        f"{root}/manifest.json: the file is not a manifest of bundles\n"
        "expected: the file that `shardwright emit` wrote"
    )
    before = tree(root)
    assert message(lambda: check(root)) == expected
    assert message(lambda: sw.emit(reshard()).write(root / "c")) == expected
    assert tree(root) == before


def test_a_manifest_with_a_bad_description(root: Path) -> None:
    listing = root / "manifest.json"
    listing.write_text(listing.read_text().replace('"float32"', '"float7"', 1))
    assert message(lambda: check(root)).splitlines()[:3] == [
        f"{root}/manifest.json, bundle 'a', dtype: unknown element type; did you mean float64?",
        "  float7",
        "  ^^^^^^",
    ]


def test_a_manifest_of_another_version(root: Path) -> None:
    listing = root / "manifest.json"
    listing.write_text(listing.read_text().replace('"version": 1', '"version": 2'))
    assert message(lambda: check(root)) == (
        f"{root}/manifest.json: the manifest must have the version that this shardwright writes\n"
        "got: 2\nexpected: 1; emit the bundles again"
    )


def test_emitting_what_was_described_gives_the_same(root: Path) -> None:
    description = Description.of(reshard(), "a")
    assert emit_described(description).files("a") == sw.emit(reshard()).files("a")


def test_the_review_page_weighs_the_forms_of_the_tpu_kernel() -> None:
    mesh = sw.Mesh({"x": 2, "y": 4})
    source, target = mesh.sharding('[{"x"}, {"y"}]'), mesh.sharding('[{"y"}, {"x"}]')
    reshard = sw.Reshard((1024, 2048), "bfloat16", source, target)
    page = sw.emit(reshard, ("pallas_tpu",)).files("b")["README.md"]
    assert "| direct (chosen) | 0, 1 | 1.000 | 1.00 | 0.00 | 0 | 0 | 1.00 |" in page
    assert "\n| windows | 0, 1 | 1.000 | " in page
    assert (
        "Forms of the TPU kernel" not in sw.emit(reshard, ("triton_gpu",)).files("b")["README.md"]
    )


@pytest.mark.parametrize(
    "given", [{"features": ("dtensor",)}, {"single_file": True}, {"collective_id": 4}]
)
def test_what_relayouts_do_not_take_is_refused(given: dict[str, object]) -> None:
    source, target = (
        sw.Stored("tp=2", {"a": (4, 4)}, layout, "float32") for layout in ("a[{tp}]", "a")
    )
    ((name, got),) = given.items()
    assert message(lambda: sw.emit(sw.Relayout(source, target), **given)) == exactly(
        f"""
        {name}: a relayout takes no {name}
        got: {got}
        expected: no {name}, or a Reshard
        """
    )
