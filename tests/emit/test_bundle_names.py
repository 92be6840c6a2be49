"""Where bundles go, what they may be called, and what their texts say of it."""

from __future__ import annotations

import importlib
import re
import shlex
from pathlib import Path

import pytest
from commands import run
from strategies import message

import shardwright as sw
from shardwright.codegen.operations.emit.group import group_files
from shardwright.codegen.operations.emit.package import package_text
from shardwright.codegen.spec.group import Group

MESH = sw.Mesh({"x": 2})
ROWS, COLUMNS = MESH.sharding('[{"x"}, {}]'), MESH.sharding('[{}, {"x"}]')
RESHARD = sw.Reshard((4, 4), "float32", ROWS, COLUMNS)


def reshard() -> sw.Bundle:
    return sw.emit(RESHARD, ("triton_gpu",))


def matmul() -> sw.MatmulBundle:
    return sw.emit(sw.Matmul("float32", ((4, 4), ROWS), ((4, 4), MESH.sharding("[{}, {}]")), ROWS))


def program() -> sw.ProgramBundle:
    jax = pytest.importorskip("jax")
    x = jax.ShapeDtypeStruct((4,), "float32")
    return sw.emit(sw.partition(lambda x: x + 1, x, mesh=MESH, in_shardings='[{"x"}]'))


@pytest.mark.parametrize("made", [reshard, matmul])
@pytest.mark.parametrize("path", ["", "wq", ".", "..", "./wq", Path("wq")])
def test_a_name_alone(
    made: object, path: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What all bundles share would go into the current folder, where nobody asked for it."""
    monkeypatch.chdir(tmp_path)
    said = message(lambda: made().write(path))  # type: ignore[operator]
    assert said.startswith(
        "path: the path must be the folder of all bundles, then the name of this bundle\n"
        f"got: {path if path else repr(path)}\n"
        'expected: a folder and a name, for example "generated/'
    )
    assert not [*tmp_path.iterdir()]


def test_a_name_alone_beside_other_bundles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "kernels"
    reshard().write(root / "wq")
    monkeypatch.chdir(root)
    reshard().write("wk")
    assert run("check", root).code == 0
    monkeypatch.chdir(root / "wk")
    reshard().write(".")
    assert message(lambda: reshard().write("")).startswith("path: the path must be the folder")


@pytest.mark.parametrize("name", ["_support", "load", "MODULES"])
@pytest.mark.parametrize("made", [reshard, matmul, program])
def test_names_of_the_package(made: object, name: str, tmp_path: Path) -> None:
    said = message(lambda: made().write(tmp_path / "k" / name))  # type: ignore[operator]
    argument = "path" if made is program else "name"
    assert said == (
        f"{argument}: the name is reserved for a file in the folder of bundles\n"
        f"got: {name}\n"
        "expected: a name other than MODULES, _support, load"
    )
    assert not [*tmp_path.iterdir()]


def test_a_program_hides_no_module(tmp_path: Path) -> None:
    assert message(lambda: program().write(tmp_path / "jax")) == (
        "path: the name must not hide a module that bundles import\n"
        "got: jax\n"
        "expected: a name other than those of standard modules and packages that bundles import"
    )


@pytest.mark.parametrize("name", ["jax", "torch", "json"])
def test_a_root_hides_no_module(name: str, tmp_path: Path) -> None:
    """Beside the folder `jax`, with no bundle of that name, `import jax` found the folder."""
    assert message(lambda: reshard().write(tmp_path / name / "w")) == (
        "path: the folder of bundles must not hide a module that bundles import\n"
        f"got: {name}\n"
        "expected: a name other than those of standard modules and packages that bundles import"
    )
    assert not [*tmp_path.iterdir()]


def group() -> dict[str, str]:
    """The files of a group."""
    plans = {name: sw.plan(RESHARD) for name in ("w", "b")}
    return group_files(Group("both", ("w", "b")), plans, ("triton_gpu",))


@pytest.mark.parametrize("backend", ["triton_gpu", "jax_xla"])
def test_who_made_it(backend: str) -> None:
    """No text names a folder that need not be there."""
    texts = [
        sw.emit(RESHARD, (backend,)).files("w"),
        sw.emit(matmul().plan, (backend,)).files("w"),
        group(),
    ]
    made = [re.findall(r"by\n    (shardwright .*)\n", "".join(each.values())) for each in texts]
    assert all(made)
    assert not [line for lines in made for line in lines if "generated" in line]
    assert made[1] == ["shardwright emit manifest.json --name w  # in the parent folder"]
    assert made[2] == [made[1][0].replace("name w", "name both")]


@pytest.mark.parametrize("made", [reshard, matmul])
def test_the_commands_of_a_page(
    made: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They run in the folder that the page says, whatever its name, and change nothing."""
    root = tmp_path / "kernels"
    made().write(root / "w")  # type: ignore[operator]
    monkeypatch.chdir(root)
    page = (root / "w/README.md").read_text()
    (block,) = re.findall(
        r"^```sh\n# In the parent folder.*?:\n(.*?)^```", page, re.MULTILINE | re.DOTALL
    )
    commands = [shlex.split(line, comments=True) for line in block.splitlines()]
    assert [words[:2] for words in commands] == [
        ["shardwright", "emit"], ["shardwright", "verify"], ["shardwright", "check"],
    ]  # fmt: skip
    for words in (commands[0], commands[2]):
        result = run(*words[1:])
        assert result.code == 0, result.err
    assert "w: unchanged" in run(*commands[0][1:]).out


def test_a_backend_that_was_not_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package says how to emit its module; a module that is emitted later is found."""
    root = tmp_path / "late_backends"
    reshard().write(root / "w")
    monkeypatch.syspath_prepend(tmp_path)
    said = 'late_backends.w has no module jax_xla: emit it with "jax_xla" among backends'
    with pytest.raises(ImportError, match=re.escape(said)):
        from late_backends.w import jax_xla
    package = importlib.import_module("late_backends.w")
    assert not hasattr(package, "other")
    sw.emit(RESHARD, ("triton_gpu", "jax_xla")).write(root / "w")
    importlib.invalidate_caches()
    pytest.importorskip("jax")
    from late_backends.w import jax_xla

    assert jax_xla.SHAPE == (4, 4)


def test_a_group_without_a_backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reshard().write(tmp_path / "grouped_late" / "w")
    home = tmp_path / "grouped_late" / "both"
    home.mkdir()
    (home / "__init__.py").write_text(group()["__init__.py"])
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match=r"grouped_late\.both has no module jax_xla"):
        from grouped_late.both import jax_xla  # noqa: F401


def test_a_load_of_many() -> None:
    """Names that are listed are few."""
    names: dict = {"__file__": __file__}
    exec(package_text({f"w{number}": "w" for number in range(45_395)}), names)
    with pytest.raises(KeyError) as error:
        names["load"]("x", "jax_xla")
    assert len(str(error.value)) < 400
    assert "… (45395 in all)" in str(error.value)
