"""`shardwright learn`, `compare` of loaders, and `check` of what was learned."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from commands import mistake, ok, run
from strategies import exactly

import shardwright as sw
from shardwright.codegen.learn.logical import LogicalTensor

LOADER_FILE = """
import numpy as np


def load(rank, tensors):
    q, k = tensors["q"], tensors["k"]
    head = slice(4 * (rank // 2), 4 * (rank // 2) + 4)
    qk = np.concatenate([q[8 * rank : 8 * rank + 8], k[head]])
    return {"qk": qk, "norm": tensors["norm"] * 2}


def convert(rank, tensors):
    return load(rank // 2 * 2, tensors)
"""
TORCH_FILE = """
import torch


def load(rank, tensors):
    assert tensors["w"].dtype == torch.bfloat16
    return {"w": tensors["w"].chunk(2)[rank]}


def swapped(rank, tensors):
    return load(1 - rank, tensors)
"""
COLLECTIVE_FILE = """
import torch
import torch.distributed as dist


def load(rank, tensors):
    rows = torch.empty(4, 3)
    dist.scatter(rows, [*tensors["w"].chunk(2)] if dist.get_rank() == 0 else None)
    return {"w": rows}
"""
TENSORS = [f"--tensor={each}" for each in ("q=32x4", "k=8x4", "norm=4")]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with loaders, in which one is, and what was learned from one of them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "a_loader", raising=False)
    importlib.invalidate_caches()
    (tmp_path / "a_loader.py").write_text(LOADER_FILE)
    done = run("learn", "a_loader:load", *TENSORS, "--ranks=tp=4", "-o", "server.toml")
    assert (done.code, done.out) == (
        1,
        "server.toml: not learned: "
        "norm elements 0 to 4 of all ranks hold norm elements 0 to 4 times 2\n",
    )
    return tmp_path


def test_the_file(home: Path) -> None:
    """`learn` writes a file that says where it is from; `compare` takes a loader."""
    text = (home / "server.toml").read_text()
    assert f'numpy = "{np.__version__}"' in text
    assert re.sub("(?m)^versions = .*\n", "", text) == textwrap.dedent(
        """\
        mesh = '<["tp"=4]>'
        dtype = 'float32'
        tensors = {q = [32, 4], k = [8, 4]}
        [buffers]
        qk = 'stack(0, q[{"tp"}], k[{"tp":(1)2}])'
        [learned]
        from = "a_loader:load"
        like = "numpy"
        tensors = {norm = [4]}
        findings = [
          "norm elements 0 to 4 of all ranks hold norm elements 0 to 4 times 2"
        ]
        """
    )
    printed = run("learn", "a_loader:load", *TENSORS, "--ranks=tp=4")
    assert (printed.code, printed.out) == (1, text)
    done = run("compare", "a_loader:convert", "a_loader:load", *TENSORS, "--ranks=4")
    assert (done.code, done.out) == (
        1,
        "q rows 8 to 16 of rank 1 hold q rows 0 to 8 (qk rows 0 to 8)\n"
        "q rows 24 to 32 of rank 3 hold q rows 16 to 24 (qk rows 0 to 8)\n",
    )


def test_the_kind_of_tensors_is_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loader that is compared gets what the learned one got, and errors name its module."""
    pytest.importorskip("torch", reason="torch is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "some_loaders.py").write_text(TORCH_FILE)
    importlib.invalidate_caches()
    ok("learn", "some_loaders:load", "--tensor=w=8x3", "--ranks=2", "--like=torch",
       "--dtype=bfloat16", "-o", "it.toml")  # fmt: skip
    assert ok("compare", "some_loaders:load", "it.toml") == "no difference\n"
    done = run("compare", "some_loaders:swapped", "it.toml")
    assert (done.code, done.out) == (
        1,
        "w rows 0 to 4 of rank 0 hold w rows 4 to 8 (w rows 0 to 4)\n"
        "w rows 4 to 8 of rank 1 hold w rows 0 to 4 (w rows 0 to 4)\n",
    )
    said = mistake("compare", "some_loaders:load", "it.toml", "--like=numpy")
    assert said.startswith("some_loaders:load: the loader failed on rank 0\n")
    load = sys.modules["some_loaders"].load
    logical = {"w": LogicalTensor.made((8, 3), "torch", "bfloat16")}
    learned = sw.learn(load, logical=logical, ranks=2)
    assert sw.compare(load, learned).same


@pytest.mark.slow
def test_processes_find_a_loader_in_this_folder(tmp_path: Path) -> None:
    """The installed command, in a folder that is on no path but for the loader."""
    pytest.importorskip("torch", reason="torch is not installed")
    (tmp_path / "a_scatter.py").write_text(COLLECTIVE_FILE)
    command = str(Path(sys.executable).with_name("shardwright"))

    def said(*words: str) -> str:
        done = subprocess.run([command, *words], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    said("learn", "a_scatter:load", "--processes", "--like=torch", "--tensor=w=8x3", "--ranks=2",
         "-o", "it.toml")  # fmt: skip
    assert said("check", "it.toml") == "it.toml: as its loader stores now\n"


def test_check(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`check` runs the loader of a file again, and says what moved."""
    assert ok("check", "server.toml") == "server.toml: as its loader stores now\n"
    text = LOADER_FILE.replace("rank // 2)", "rank % 2)").replace("* 2}", "* 3}")
    (home / "a_loader.py").write_text(text)
    text = (home / "server.toml").read_text().replace(f'"{np.__version__}"', '"1.26.0"')
    (home / "server.toml").write_text(text)
    monkeypatch.delitem(sys.modules, "a_loader")
    shutil.rmtree(home / "__pycache__", ignore_errors=True)
    done = run("check", "server.toml")
    assert (done.code, done.out.splitlines()) == (
        1,
        [
            "server.toml: k rows 0 to 4 of rank 1 hold k rows 4 to 8 (qk rows 8 to 12)",
            "server.toml: k rows 4 to 8 of rank 2 hold k rows 0 to 4 (qk rows 8 to 12)",
            "server.toml: norm elements 0 to 4 of all ranks hold norm elements 0 to 4 times 3",
            f"server.toml: numpy is {np.__version__}, was 1.26.0",
        ],
    )


def test_the_config(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`check` of a config runs the loaders of the files that it names, in their folders."""
    reshard = 'name = "w"\nmesh = "tp=2"\nshape = [4]\ndtype = "int8"'
    sides = "source = '[{\"tp\"}]'\ntarget = '[{}]'\nbackends = [\"jax_xla\"]"
    text = f'learned = ["server.toml"]\n[[reshard]]\n{reshard}\n{sides}\n'
    (home / "shardwright.toml").write_text(text)
    (home / "inner").mkdir()
    monkeypatch.chdir(home / "inner")
    ok("emit")
    said = ok("check").splitlines()
    assert said[0] == f"{Path('..') / 'server.toml'}: as its loader stores now"
    again = (home / "server.toml").read_text().replace("(1)2", "(2)2")
    (home / "server.toml").write_text(again)
    done = run("check")
    assert done.code == 1
    assert "k rows 0 to 4 of rank 1 hold" in done.out or "k rows 4 to 8 of rank 1" in done.out
    (home / "shardwright.toml").write_text(text.replace('["server.toml"]', '"server.toml"'))
    assert mistake("check").splitlines()[0].endswith("learned: `learned` must be a list of files")


def test_mistakes(home: Path) -> None:
    assert mistake("learn", "a_loader:load", "--ranks=4") == exactly(
        """
        --tensor: missing
        expected: --tensor q=32x16
        """
    )
    assert mistake("learn", "a_loader:load", "--tensor=q", "--ranks=4") == exactly(
        """
        --tensor: a tensor must have a name and a shape
        got: q
        expected: q=32x16
        """
    )
    assert mistake("learn", "a_loader:none", "--tensor=q=4", "--ranks=4") == exactly(
        """
        MODULE:FUNCTION: the loader cannot be imported
        got: a_loader:none (AttributeError: module 'a_loader' has no attribute 'none')
        expected: module:name, where the module is in this folder or installed
        """
    )
    said = mistake("learn", "a_loader:load", "--tensor=q=4", "--ranks=4", "--like=tf")
    assert said.startswith("--like: unknown kind of tensors\ngot: tf\n")
    for words, expected in MISTAKES:
        assert mistake(*words) == exactly(expected)


GIVEN = ("--tensor=q=32x4", "--ranks=2")
MISTAKES = [
    (
        ("learn", "a_loader.py:load", *GIVEN),
        """
        MODULE:FUNCTION: a loader must be given as MODULE:FUNCTION
        got: a_loader.py:load
        expected: a_loader:load
        """,
    ),
    (
        ("learn", "a_loader:load", *GIVEN),
        """
        a_loader:load: the loader failed on rank 0
        got: KeyError: 'k' (a_loader.py, line 6)
        expected: load(rank, tensors) of numpy tensors q; for other tensors, --like torch
        """,
    ),
    (
        ("learn", "a_loader:load", *GIVEN, "--tensor=q=8x4"),
        """
        --tensor: a tensor may be given only once
        got: q=8x4
        expected: q=32x4 alone, or another name
        """,
    ),
    (
        ("learn", "a_loader:load", "--tensor=q=8xa", "--ranks=2"),
        """
        --tensor q: the text is not a shape
          8xa
            ^
        got: a
        expected: extents, for example 6x6 or 6,6
        """,
    ),
    (
        ("learn", "a_loader:load", "--tensor=q=8x4", "--ranks=-2"),
        """
        ranks: ranks must be a count, a sequence of ranks or a mesh
        got: -2
        expected: 8, range(8), or 'dp=2,tp=4'
        """,
    ),
    (
        ("learn", "a_loader:load", *GIVEN, "-o", "no_folder/it.toml"),
        """
        --output: cannot be written: no such folder
        got: no_folder/it.toml
        expected: a file in a folder that exists and can be written
        """,
    ),
    (
        ("compare", "a_loader:load", "a_loader:convert"),
        """
        --tensor: missing
        expected: --tensor q=32x16
        """,
    ),
    (
        ("compare", "a_loader:load", "server.toml", "--bytes"),
        """
        --bytes: both layouts must be files to count the bytes of a relayout
        got: a_loader:load
        expected: the file of shardwright learn a_loader:load -o FILE
        """,
    ),
]
