"""Support modules: one text for all modules of a folder, its version, and modules without them."""

from __future__ import annotations

import ast
import itertools
import json
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from places import ROOT
from strategies import message

import shardwright as sw
from shardwright.codegen import registry
from shardwright.codegen.operations.bundles.check import check
from shardwright.codegen.operations.emit.model import model_backends
from shardwright.codegen.text.single_file import single_file
from shardwright.codegen.text.support import (
    names,
    reading_order,
    support_files,
    support_text,
    text,
    version,
)

SOURCES = sorted((ROOT / "templates" / "support").glob("*.py"))
OURS = ("shardwright", "ir", "codegen", "templates")
RELAYOUTS = "".join(p.read_text() for p in (ROOT / "templates").glob("*/relayout*.py.jinja"))


def reshard(rows: int = 6) -> sw.Reshard:
    mesh = sw.Mesh({"x": 2, "y": 3})
    return sw.Reshard(
        shape=(rows, 6),
        dtype="float32",
        source=mesh.sharding('[{"x"}, {"y"}]'),
        target=mesh.sharding('[{"y"}, {"x"}]'),
    )


def written(folder: Path, name: str = "a", **asked: bool) -> Path:
    """The folder of a bundle with a Triton module."""
    sw.emit(reshard(), backends=("triton_gpu",), **asked).write(folder / "generated" / name)
    return folder / "generated" / name


def said(*words: str, cwd: Path) -> str:
    """The last line that Python prints, of an error if it fails."""
    run = subprocess.run([sys.executable, *words], cwd=cwd, capture_output=True, text=True)
    return (run.stderr if run.returncode else run.stdout).splitlines()[-1]


def imports(source: str) -> tuple[set[str], set[str]]:
    """The support modules that a module imports, and the others."""
    near, far = set(), set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.level:
            near.add((node.module or "").split(".")[-1])
        elif isinstance(node, ast.ImportFrom):
            far.add((node.module or "").split(".")[0])
        elif isinstance(node, ast.Import):
            far |= {alias.name.split(".")[0] for alias in node.names}
    return near, far


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_support_modules_stand_alone(path: Path) -> None:
    """They import each other and nothing of ours, and one can be read at once."""
    source = path.read_text()
    near, far = imports(source)
    assert near <= {other.stem for other in SOURCES}
    assert far.isdisjoint(OURS)
    assert source.count("\n") <= 400
    assert f"_support.{path.stem} import" in RELAYOUTS or any(
        path.stem in names(backend, grouped=True, multiplied=True, modelled=True)
        for backend in registry.NAMES
    )


@pytest.mark.parametrize("backend", registry.NAMES)
def test_a_backend_lists_all_that_its_modules_import(backend: str) -> None:
    for grouped, multiplied, modelled in itertools.product((False, True), repeat=3):
        extra = {"grouped": grouped, "multiplied": multiplied, "modelled": modelled}
        listed = set(names(backend, **extra))
        for name in listed:
            assert imports(text(name))[0] <= listed
    alone = set(names(backend, resharded=False, modelled=True))
    assert all(imports(text(name))[0] <= alone for name in alone)


def test_the_folder_has_what_its_bundles_use(tmp_path: Path) -> None:
    bundle = written(tmp_path)
    files = {path.name: path.read_text() for path in (bundle.parent / "_support").iterdir()}
    assert files == support_files(["triton_gpu"])
    assert (
        f'require("triton_gpu", "{version("triton_gpu")}", __name__)'
        in (bundle / "triton_gpu.py").read_text()
    )
    sw.emit(reshard(), backends=("triton_gpu",), single_file=True).write(bundle)
    assert not (bundle.parent / "_support").exists()
    assert check(bundle.parent) == ()


def test_a_folder_of_models_has_only_their_support(tmp_path: Path) -> None:
    """And that of reshards as long as there is one."""
    rules = (sw.Rules("a=2", each) for each in ("_[{a}]", "_"))
    plan = sw.sync(sw.Model({"w": (4,)}, "float32"), *rules).plan
    folder = sw.emit(plan).write(tmp_path / "generated/m")[0].parent.parent

    def written_support() -> set[str]:
        return {path.stem for path in (folder / "_support").glob("*.py")} - {"__init__"}

    alone = {
        each for name in model_backends() for each in names(name, resharded=False, modelled=True)
    }
    assert written_support() == alone
    assert len(alone) < 20
    written(tmp_path)
    assert written_support() > {*names("triton_gpu", modelled=True)}
    assert check(folder) == ()
    shutil.rmtree(folder / "a")
    sw.emit(reshard(), backends=("triton_gpu",), single_file=True).write(folder / "a")
    assert written_support() == alone
    assert check(folder) == ()


LATER = r"^ +from \.[.\w]+ import .*\n\n?"
"""An import when it is used."""
UNUSED = (
    *("torch_async.py", "torch_dtensor.py", "torch_gradient.py", "torch_handed.py"),
    *("cuts.py", "torch_memory.py", "torch_moved.py", "torch_remembered.py", "triton_lines.py"),
)
"""What a module has where it was asked for."""


def test_single_file_is_the_module_and_its_support(tmp_path: Path) -> None:
    """But for imports and the line that asks for a package, byte for byte; both run."""
    pytest.importorskip("triton")
    bundle, alone = written(tmp_path), written(tmp_path / "alone", single_file=True)
    own = (bundle / "triton_gpu.py").read_text()
    joined = (alone / "triton_gpu.py").read_text()
    command = re.search(r"Emitted by\n    (.*)\n", joined)
    assert command
    assert "--single-file --name a" in command[1]
    expected = own.replace("--name a", "--single-file --name a")
    assert joined == single_file(expected, partial(support_text, ("triton_gpu",)))
    assert joined.endswith(re.sub(LATER, "", body(own), flags=re.MULTILINE))
    files = support_files(["triton_gpu"])
    used = {name: source for name, source in files.items() if f"# _support/{name}\n" in joined}
    unused = {*UNUSED, "torch_reduce.py", "torch_phased.py", "torch_both.py"}
    assert {*files} - {*used} == unused
    bodies = (re.sub(LATER, "", body(source), flags=re.MULTILINE) for source in used.values())
    assert all(each in joined for each in bodies)
    assert statements(joined) == sum(map(statements, used.values())) + statements(own) - 1
    outputs = [
        said("-m", "generated.a.triton_gpu", cwd=tmp_path),
        said("triton_gpu.py", cwd=alone),
    ]
    assert outputs[0] == outputs[1] != ""


def body(source: str) -> str:
    """What stands below the imports of a module."""
    docstring, *rest = ast.parse(source).body
    ends = [n.end_lineno for n in rest if isinstance(n, ast.Import | ast.ImportFrom)]
    lines = source.splitlines(keepends=True)
    return "".join(lines[max(filter(None, ends), default=docstring.end_lineno) :])


def statements(source: str) -> int:
    """How many there are at the top of a module, imports and docstrings left out."""
    return sum(
        not isinstance(node, ast.Import | ast.ImportFrom)
        and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for node in ast.parse(source).body
    )


def test_a_module_run_by_its_path_says_how_to_run_it(tmp_path: Path) -> None:
    bundle = written(tmp_path)
    assert said("triton_gpu.py", cwd=bundle) == (
        "ImportError: run `python -m FOLDER.NAME.triton_gpu` in the folder that contains FOLDER"
    )
    assert said("-m", "a.triton_gpu", cwd=bundle.parent) == (
        "ImportError: import FOLDER.a, not a: the module is part of a package"
    )


def test_a_bundle_copied_without_the_support_modules(tmp_path: Path) -> None:
    shutil.copytree(written(tmp_path), tmp_path / "copied" / "a")
    assert said("-m", "copied.a.triton_gpu", cwd=tmp_path) == (
        "ImportError: copied.a needs the folder _support: copy it, or emit with --single-file"
    )


def test_support_modules_of_another_version(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    bundle = written(tmp_path)
    package = bundle.parent / "_support" / "__init__.py"
    package.write_text(package.read_text().replace(version("triton_gpu"), "0" * 16))
    assert said("-c", "import generated.a.triton_gpu", cwd=tmp_path) == (
        f"ImportError: generated.a.triton_gpu needs _support {version('triton_gpu')}, "
        f"found {'0' * 16}: emit it again"
    )


def older(root: Path) -> None:
    """Let the manifest say that another version wrote the folder."""
    listing = root / "manifest.json"
    document = json.loads(listing.read_text())
    document["support"]["versions"]["triton_gpu"] = "0" * 16
    listing.write_text(json.dumps(document))


def test_one_version_in_a_folder(tmp_path: Path) -> None:
    """A bundle alone is written again; beside others it is refused, with nothing changed."""
    bundle = written(tmp_path)
    older(bundle.parent)
    written(tmp_path)
    assert check(bundle.parent) == ()
    older(bundle.parent)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert message(lambda: written(tmp_path, "b")) == (
        "path: other bundles of this folder use a different version of the support modules of "
        "triton_gpu: a\n"
        f"got: {'0' * 16}\n"
        f"expected: {version('triton_gpu')}: run `shardwright emit` on manifest.json to update "
        "all"
    )
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_check_shows_an_edited_support_module(tmp_path: Path) -> None:
    root = written(tmp_path).parent
    path = root / "_support" / "boxes.py"
    path.write_text(path.read_text().replace("def extents(", "def sizes("))
    (root / "_support" / "mine.py").write_text("")
    (root / "_support" / "torch_gpu.py").unlink()
    found = [(problem.path, problem.rule) for problem in check(root)]
    assert found == [
        ("_support/boxes.py", "edited by hand"),
        ("_support/torch_gpu.py", "missing"),
        ("_support/mine.py", "no emission writes this file"),
    ]
    assert check(root / "a") == check(root)


@pytest.mark.parametrize("name", ["2x3", "my-bundles", "class"])
def test_the_folder_of_bundles_is_a_package(name: str, tmp_path: Path) -> None:
    assert message(lambda: sw.emit(reshard()).write(tmp_path / name / "a")) == (
        "path: the folder of bundles is a Python package, so its name must be an identifier\n"
        f"got: {name}\n"
        "expected: letters, digits and underscores, not starting with a digit; not a keyword"
    )
    assert not (tmp_path / name).exists()


def test_a_gradient_where_it_is_asked_for(tmp_path: Path) -> None:
    assert not (written(tmp_path) / "triton_gpu_backward.py").exists()
    bundle = written(tmp_path, gradient=True)
    assert (bundle / "triton_gpu_backward.py").exists()
    assert check(bundle.parent) == ()
    written(tmp_path)
    assert not (bundle / "triton_gpu_backward.py").exists()


@pytest.mark.parametrize(
    "name", ["gather_gpu/triton_gpu", "book_4x2/jax_xla", "gather_kernel/pallas_tpu"]
)
def test_the_modules_to_read(name: str) -> None:
    """They are those that a single file has, each after one that imports it."""
    module, backend = (ROOT / f"generated/matmul_{name}.py").read_text(), name.partition("/")[2]
    found = reading_order(module)
    joined = re.findall(
        r"^# _support/(\w+).py$",
        single_file(module, partial(support_text, (backend,))),
        re.MULTILINE,
    )
    assert sorted((*found, "__init__")) == sorted(joined)
    known = module
    for each in found:
        assert re.search(rf"^ *from \.(\._support\.)?{each} import", known, re.MULTILINE), each
        known += text(each)
