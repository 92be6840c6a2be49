"""Programs as StableHLO: they run by themselves, with the collectives that are reported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from a_program import MODULE, TABLE, forgotten, replaced, written
from commands import run
from places import TESTS
from sweeps import sampled

CASES = ("mlp_step:fsdp+tp", "scan backward", "layers", "cond")
QUICKLY = CASES[:1]


@cache
def ran(names: tuple[str, ...]) -> dict[str, Any]:
    """What the programs compute and bring, from a process with eight devices."""
    env = {**os.environ, "PYTHONPATH": str(TESTS)}
    command = [sys.executable, str(TESTS / "stablehlo_process.py"), *names]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found.keys() == {*names}
    return found


@pytest.mark.parametrize("name", sampled(CASES, *QUICKLY))
def test_it_runs_by_itself(name: str) -> None:
    """Values are one device's; collectives and bytes are those reported, nothing is of ours."""
    found = ran(QUICKLY if name in QUICKLY else CASES[1:])[name]
    assert found["fault"] == ""
    assert found["ops"] == found["reported"]
    assert found["bytes"][0] == found["bytes"][1]
    assert found["dialects"] == ["func", "mhlo", "stablehlo"]  # of mhlo the number of partitions
    assert found["foreign"] == []


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    written(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command(home: Path) -> None:
    done = run("emit", "mlp", "--stablehlo", "mlp.mlir")
    assert (done.code, done.out) == (0, "mlp.mlir: written\n")
    text = (home / "mlp.mlir").read_text()
    assert text.startswith("module @step attributes {mhlo.num_partitions = 8 : i32} {\n")
    assert '"stablehlo.all_reduce"' in text
    assert "replica_groups = dense<[[0, 1], [2, 3], [4, 5], [6, 7]]>" in text
    assert not (home / "generated").exists()
    run("emit", "mlp", "--stablehlo", "again.mlir")
    assert (home / "again.mlir").read_text() == text
    forgotten()


def test_a_sub_axis_is_an_axis_of_its_own(home: Path) -> None:
    table = replaced(TABLE, ("d=4,t=2", "d=8"))
    inputs = '({"w1": \'[{}, {}]\', "w2": \'[{}, {}]\'}, \'[{"d":(1)2}, {"d":(2)4}]\')'
    old = MODULE[MODULE.index("inputs = ") + len("inputs = ") :]
    written(home, replaced(MODULE, (old, inputs + "\n")), table)
    assert run("emit", "mlp", "--stablehlo", "mlp.mlir").code == 0
    text = (home / "mlp.mlir").read_text()
    assert "[[0, 1, 2, 3], [4, 5, 6, 7]]" in text
    forgotten()


def test_a_reshard_is_none(home: Path) -> None:
    (home / "shardwright.toml").write_text(
        '[[reshard]]\nname = "gather"\nmesh = "x=2"\nshape = [4]\ndtype = "f32"\n'
        "source = \"P('x')\"\ntarget = 'P()'\n"
    )
    done = run("emit", "gather", "--stablehlo", "gather.mlir")
    assert done.code == 2
    assert done.err == (
        "error: --stablehlo: only a program can be written as StableHLO\n"
        "got: gather\nexpected: the name of a [[program]]\n"
    )
    assert not (home / "gather.mlir").exists()
