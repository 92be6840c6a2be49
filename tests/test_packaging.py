"""What is installed: the tree and nothing else, under one name, light to import."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from places import ROOT

FOLDERS = {  # folder of the tree -> folder of the wheel
    "shardwright": "shardwright",
    "ir": "shardwright/ir",
    "codegen": "shardwright/codegen",
    "templates": "shardwright/templates",
}
HEAVY = ("jax", "jaxlib", "torch", "triton")


def tracked(folder: str) -> list[str]:
    """The files of a folder that git knows, or is about to."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", folder]
    result = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True)
    return [path for path in result.stdout.splitlines() if (ROOT / path).is_file()]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A wheel of the tree, and the files it was built from.

    The build is of a copy and leaves nothing in the tree.
    """
    copy = tmp_path_factory.mktemp("tree")
    kept = [path for folder in FOLDERS for path in tracked(folder)]
    for path in [*kept, "pyproject.toml", "README.md", "LICENSE"]:
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        (copy / path).write_bytes((ROOT / path).read_bytes())
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist", "."]
    subprocess.run(build, cwd=copy, check=True, capture_output=True)
    (wheel,) = (copy / "dist").glob("*.whl")
    return wheel, kept


def inside(path: str) -> str:
    """Where a file of the tree stands in the wheel."""
    folder, _, rest = path.partition("/")
    return f"{FOLDERS[folder]}/{rest}"


def test_the_wheel_holds_the_tree(built: tuple[Path, list[str]]) -> None:
    wheel, kept = built
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == set(map(inside, kept))
    assert {name.split("/")[0] for name in names} == {"shardwright"}


def test_the_tree_serves_where_only_a_wheel_is_installed() -> None:
    """Python started in the tree finds `shardwright/` before an installed package."""
    program = """
import sys

sys.meta_path = [f for f in sys.meta_path if not f.__module__.startswith("__editable__")]
import shardwright

print(shardwright.Mesh({"x": 2}))
"""
    run = [sys.executable, "-c", program]
    result = subprocess.run(run, cwd=ROOT, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, '<["x"=2]>\n'), result.stderr


def modules_of(program: str) -> set[str]:
    """The names of the modules that a program has imported at its end."""
    show = "import sys; print(*sorted(sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", f"{program}\n{show}"], check=True, capture_output=True, text=True
    )
    return set(result.stdout.splitlines()[-1].split())


def imported_by(program: str) -> set[str]:
    """The top-level names of the modules that a program has imported at its end."""
    return {name.split(".")[0] for name in modules_of(program)}


def test_importing_is_light() -> None:
    assert imported_by("import shardwright").isdisjoint({*HEAVY, "sympy", "jinja2", "rich"})
    assert imported_by("from shardwright.codegen.cli import app").isdisjoint(HEAVY)


COMMAND = """
import contextlib, sys
from shardwright.codegen.cli import main
sys.argv = ["shardwright", WORDS]
with contextlib.suppress(SystemExit):
    main()
print()
"""
RESHARD = ("--mesh", "x=2,y=2", "--shape", "4x4", "--dtype", "int8", "--name", "swap")
SIDES = ("--source", '[{"x"}, {"y"}]', "--target", '[{"y"}, {"x"}]')


def loaded_by(command: str, *more: str) -> set[str]:
    words = ", ".join(map(repr, (command, *RESHARD, *SIDES, *more)))
    names = modules_of(COMMAND.replace("WORDS", words))
    rooms = {name.removeprefix("shardwright.codegen.") for name in names}
    return {each for each in rooms if each in ("partition", "jinja2", "operations.reshard", "ssl")}


def test_a_command_loads_what_it_runs(tmp_path: Path) -> None:
    """A reshard needs no programs, its plan no templates, and neither an HTTP client."""
    assert loaded_by("plan") == {"operations.reshard"}
    assert loaded_by("emit", "-o", str(tmp_path)) == {"operations.reshard", "jinja2"}
    assert (tmp_path / "swap").is_dir()


@pytest.mark.parametrize(
    "words", [["-c", "import shardwright"], ["-m", "shardwright", "--help"]], ids=["import", "help"]
)
def test_starting_is_quick(words: list[str]) -> None:
    """Under a second of the processor, whatever else the machine does; the best of five."""
    times = []
    for _ in range(5):
        before = sum(os.times()[2:4])
        subprocess.run([sys.executable, *words], check=True, capture_output=True)
        times.append(sum(os.times()[2:4]) - before)
    assert 0 < min(times) < 1


def test_emitting_imports_no_backend() -> None:
    program = """
import shardwright as sw
for name in sw.__all__:
    getattr(sw, name)
mesh = sw.Mesh({"x": 2})
source, target = mesh.sharding('[{"x"}]'), mesh.sharding("[{}]")
sw.emit(sw.Reshard(shape=(4,), dtype="int8", source=source, target=target)).files("a")
"""
    loaded = imported_by(program)
    assert "sympy" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_an_unknown_name_of_the_package() -> None:
    import shardwright

    assert set(dir(shardwright)) == set(shardwright.__all__)
    with pytest.raises(AttributeError, match="module 'shardwright' has no attribute 'resharded'"):
        _ = shardwright.resharded


def test_versions_that_are_pinned_are_those_that_are_installed() -> None:
    from importlib.metadata import version

    from packaging.requirements import Requirement

    lines = (ROOT / "constraints.txt").read_text().splitlines()
    for line in lines:
        if line and not line.startswith("#"):
            pin = Requirement(line)
            assert pin.specifier.contains(version(pin.name)), line


def test_every_dependency_is_pinned() -> None:
    from packaging.requirements import Requirement

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [text for texts in project["optional-dependencies"].values() for text in texts]
    named = {Requirement(text).name for text in [*project["dependencies"], *extras]}
    pinned = {
        Requirement(line).name
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line and not line.startswith("#")
    }
    assert named - {"shardwright"} <= pinned
