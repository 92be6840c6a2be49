"""Groups and shared bundles, when two commands write at once, one is stopped, or the disk is full:
nothing is lost, and the next command makes it whole."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import files, mistake, ok, run

from shardwright.codegen.operations.bundles.check import check
from shardwright.codegen.operations.emit import write as writing

HEAD = """\
[defaults]
mesh = "x=2"
dtype = "float32"
backends = ["triton_gpu", "jax_xla"]
"""


def table(name: str, columns: int = 4) -> str:
    return (
        f'[[reshard]]\nname = "{name}"\nshape = [4, {columns}]\n'
        "source = '[{\"x\"}, {}]'\ntarget = '[{}, {\"x\"}]'\n"
    )


GROUP = '[[group]]\nname = "all"\nmembers = ["wk", "wo", "wq"]\n'
TABLES = HEAD + table("wq") + table("wo", 6) + table("wk") + table("wv") + GROUP
# Another shape of all that share a bundle, a table less, and a group less of a tensor.
EDITED = HEAD + table("wo", 6) + table("wk", 8) + table("wv", 8) + GROUP.replace(', "wq"', "")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, in which one is, with a config."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shardwright.toml").write_text(TABLES)
    return tmp_path


def at_once(home: Path, *commands: list[str]) -> list[tuple[int, str]]:
    """Exit codes of commands that begin together, and what they say of mistakes."""
    words = [sys.executable, "-m", "shardwright"]
    started = [
        subprocess.Popen(
            [*words, *more], cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for more in commands
    ]
    ended = [(each, each.communicate(timeout=300)) for each in started]
    return [(each.returncode, said) for each, (_, said) in ended]


@pytest.mark.slow
def test_commands_at_once_keep_what_the_others_write(home: Path) -> None:
    words = [["emit", "all"], ["emit"], ["emit", "wv"], ["emit", "wo"]]
    assert [code for code, _ in at_once(home, *words)] == [0] * 4
    assert check("generated") == ()
    whole = files(home)
    assert "generated/all: unchanged" in ok("emit")
    assert files(home) == whole


@pytest.mark.slow
def test_of_two_configs_at_once_one_has_the_folder(home: Path) -> None:
    (home / "other.toml").write_text(TABLES.replace("[4, ", "[8, "))
    words = [["emit", "shardwright.toml"], ["emit", "other.toml"]]
    ended = at_once(home, *words)
    assert sorted(code for code, _ in ended) == [0, 2]
    (said,) = (said for code, said in ended if code == 2)
    assert "a different config owns this folder" in said
    assert check("generated") == ()


def stopping(at: int, error: BaseException) -> Callable[..., Any]:
    """A function that raises when it is called the so-manieth time, and else does what the first
    of its arguments does."""
    calls = iter(range(at + 1))

    def call(real: Callable[..., Any], *given: Any) -> Any:
        if next(calls, None) == at:
            raise error
        return real(*given)

    return call


@pytest.mark.parametrize("stage", ["written", "moved", "removed"])
@pytest.mark.parametrize("at", [0, 3, 7])
def test_ctrl_c(stage: str, at: int, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was being done: no file of a temporary name is left, none is half written, and the
    command that is repeated gives what it gives alone."""
    (home / "shardwright.toml").write_text(EDITED)
    ok("emit")
    wanted = files(home / "generated")
    shutil.rmtree("generated")
    (home / "shardwright.toml").write_text(TABLES)
    ok("emit")
    before = files(home / "generated")
    (home / "shardwright.toml").write_text(EDITED)
    with monkeypatch.context() as patched:
        if stage == "written":
            real, call = Path.write_bytes, stopping(at, KeyboardInterrupt())
            patched.setattr(Path, "write_bytes", lambda path, data: call(real, path, data))
        elif stage == "moved":
            replace, call = os.replace, stopping(at, KeyboardInterrupt())
            patched.setattr(writing.os, "replace", lambda a, b: call(replace, a, b))
        else:
            unlink, call = Path.unlink, stopping(at // 2, KeyboardInterrupt())
            patched.setattr(Path, "unlink", lambda path, **more: call(unlink, path))
        with pytest.raises((KeyboardInterrupt, SystemExit, AssertionError)):
            ok("emit")
    found = files(home / "generated")
    assert not [name for name in found if ".tmp" in name]
    if stage == "written":
        assert found == before
    for name, text in found.items():
        assert text in (before.get(name), wanted.get(name)), name
    ok("emit")
    assert files(home / "generated") == wanted
    assert check("generated") == ()


@pytest.mark.parametrize("file", ["all/triton_gpu.py", "wk/plan.json", "__init__.py"])
def test_a_full_disk(file: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is as it was, at the first emission and at a later one."""
    temporary = Path("generated") / Path(file).with_name(f".{Path(file).name}.tmp")
    real = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        if path == temporary:
            real(path, data[:10])
            raise OSError(28, "No space left on device", str(path))
        return real(path, data)

    for tables in (EDITED, TABLES, EDITED):
        (home / "shardwright.toml").write_text(tables)
        if tables is TABLES:
            ok("emit")
            continue
        before = files(home)
        with monkeypatch.context() as patched:
            patched.setattr(Path, "write_bytes", full)
            assert mistake("emit") == (
                "shardwright.toml, out: cannot be written: No space left on device\n"
                f"got: {temporary}\n"
                "expected: a folder that can be created and written"
            )
        assert files(home) == before
    assert run("check").code == 1
    ok("emit")
    assert check("generated") == ()
